"""Random calls on a file in DAFS and on a local one: both must answer alike, always.

random.py FILE-IN-DAFS LOCAL-FILE SEED COUNT
"""
import mmap, os, random, sys

A, B, seed, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
r = random.Random(seed)
for p in (A,B):
    if os.path.exists(p): os.unlink(p)
fl=os.O_RDWR|os.O_CREAT
a,b=os.open(A,fl),os.open(B,fl)
def same(x,y,what):
    if x!=y: sys.exit(f'seed {seed}, call {i}, {what}: {str(x)[:80]}, and locally {str(y)[:80]}')
for i in range(n):
    op=r.randrange(12); off=r.randrange(300000); ln=r.randrange(1,70000)
    if op in(0,1): same(os.pread(a,ln,off),os.pread(b,ln,off),'pread')
    elif op in(2,3):
        d=r.randbytes(ln); same(os.pwrite(a,d,off),os.pwrite(b,d,off),'pwrite')
    elif op==4: os.ftruncate(a,off); os.ftruncate(b,off)
    elif op==5: os.truncate(A,off); os.truncate(B,off)
    elif op==6: same(os.lseek(a,off,0),os.lseek(b,off,0),'seek'); same(os.read(a,ln),os.read(b,ln),'read')
    elif op==7:
        d=r.randbytes(ln%2000); same(os.write(a,d),os.write(b,d),'write'); same(os.lseek(a,0,1),os.lseek(b,0,1),'tell')
    elif op==8: same(os.fstat(a).st_size,os.fstat(b).st_size,'size'); same(os.lseek(a,0,2),os.lseek(b,0,2),'end')
    elif op==9:
        os.close(a);os.close(b);a,b=os.open(A,fl),os.open(B,fl)
    elif op==10:
        same(os.stat(A).st_size,os.stat(B).st_size,'stat'); os.fsync(a)
    elif op==11:
        s=os.fstat(a).st_size
        if s:
            x,y=mmap.mmap(a,s),mmap.mmap(b,s); o=r.randrange(s); d=r.randbytes(min(3000,s-o)); x[o:o+len(d)]=d; y[o:o+len(d)]=d
            x.flush(); y.flush(); same(bytes(x),bytes(y),'map'); x.close(); y.close()
same(open(A,'rb').read(),open(B,'rb').read(),'all'); os.unlink(A); os.unlink(B)
