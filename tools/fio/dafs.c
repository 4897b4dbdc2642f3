/*
 * An engine for fio that reads and writes files of a DAFS server by libdafs, into memory that is
 * registered: ioengine=external:/path/to/dafs.so, dafs_url=dafs://host/directory.
 *
 * Files are named beneath the URL's path. What a job reads and is not long enough is written
 * before the jobs start, as fio does with local files. docs/fio.md has an example.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <dafs.h>

#include "fio.h"
#include "optgroup.h"

struct dafs_options {
	/* fio wants something before the first option. */
	void *unused;
	char *url;
	/* A flag of dap_connect_options. */
	unsigned int transport;
};

/* What a job has; each has a session of its own. */
struct dafs_job {
	dap_client *client;
	dap_session *session;
	dap_group *group;
	dap_region *region;
	dap_completion *completions;
};

/* Requests outstanding, unless more are asked for, and at most. */
#define DEFAULT_CREDITS 64
#define CREDITS_MAX 1024

static struct fio_option options[] = {
	{
		.name = "dafs_url",
		.lname = "URL of the directory on a DAFS server",
		.type = FIO_OPT_STR_STORE,
		.help = "Where the files are, such as dafs://localhost/directory",
		.off1 = offsetof(struct dafs_options, url),
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "dafs_transport",
		.lname = "Transport to a DAFS server",
		.type = FIO_OPT_STR,
		.help = "How the server is reached",
		.off1 = offsetof(struct dafs_options, transport),
		.def = "auto",
		.posval = {
			{ .ival = "auto", .oval = 0, .help = "Shared memory on this host, TCP elsewhere" },
			{ .ival = "shm", .oval = DAP_CONNECT_SHARED_MEMORY, .help = "Shared memory" },
			{ .ival = "tcp", .oval = DAP_CONNECT_TCP, .help = "TCP" },
		},
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

static int failed(struct thread_data *td, const char *what, const char *name, int64_t result)
{
	log_err("dafs: %s %s: %s\n", what, name, dap_error_text());
	td_verror(td, (int)-result, what);
	return 1;
}

/* Connects a job that has not been connected yet. */
static struct dafs_job *job_of(struct thread_data *td)
{
	struct dafs_options *chosen = td->eo;
	struct dafs_job *job = td->io_ops_data;
	dap_connect_options wanted = { .size = sizeof(wanted), .flags = chosen->transport };
	int64_t result;

	if (job)
		return job;
	if (!chosen->url) {
		log_err("dafs: dafs_url says where the files are, such as dafs://localhost/\n");
		td_verror(td, EINVAL, "dafs_url");
		return NULL;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return NULL;
	/* What goes beyond waits within the library. */
	if (td->o.iodepth > DEFAULT_CREDITS)
		wanted.credits = td->o.iodepth < CREDITS_MAX ? td->o.iodepth : CREDITS_MAX;
	result = dap_client_create(NULL, &job->client);
	if (result == 0)
		result = dap_connect(job->client, chosen->url, &wanted, &job->session);
	if (result == 0)
		result = dap_group_create(job->client, &job->group);
	job->completions = calloc(td->o.iodepth, sizeof(*job->completions));
	if (result < 0 || !job->completions) {
		failed(td, "connecting to", chosen->url, result < 0 ? result : -ENOMEM);
		if (job->session)
			dap_disconnect(job->session);
		if (job->client)
			dap_client_release(job->client);
		free(job->completions);
		free(job);
		return NULL;
	}
	td->io_ops_data = job;
	return job;
}

static void dafs_cleanup(struct thread_data *td)
{
	struct dafs_job *job = td->io_ops_data;

	if (!job)
		return;
	td->io_ops_data = NULL;
	dap_group_release(job->group);
	dap_disconnect(job->session);
	dap_client_release(job->client);
	free(job->completions);
	free(job);
}

/* Writes a file that is to be read, as long as it is to be. */
static int lay_out(struct thread_data *td, struct dafs_job *job, struct fio_file *f, uint64_t from)
{
	const size_t block = 1 << 20;
	uint64_t length = f->real_file_size;
	char *bytes = malloc(block);
	dap_file *file = NULL;
	int64_t result = bytes ? 0 : -ENOMEM;

	if (result == 0)
		result = dap_open(job->session, f->file_name, DAP_WRITE | DAP_CREATE, 0644, NULL, &file);
	if (result == 0)
		fill_random_buf(&td->buf_state, bytes, block);
	while (result >= 0 && from < length) {
		size_t next = length - from < block ? length - from : block;

		result = dap_pwrite(file, bytes, next, from);
		from += next;
	}
	if (result >= 0)
		result = dap_fsync(file);
	if (file)
		dap_close(file);
	free(bytes);
	return result < 0 ? failed(td, "laying out", f->file_name, result) : 0;
}

/* Before the jobs are forked: says how long the files are. */
static int dafs_setup(struct thread_data *td)
{
	struct dafs_job *job;
	struct fio_file *f;
	unsigned int i;
	int result;

	if (td_trim(td)) {
		log_err("dafs: the protocol has nothing to trim with\n");
		td_verror(td, EOPNOTSUPP, "rw");
		return 1;
	}
	job = job_of(td);
	result = job ? 0 : 1;

	for_each_file(td, f, i) {
		dap_attributes found;
		uint64_t there = 0;

		if (result)
			break;
		if (dap_stat(job->session, f->file_name, &found) == 0)
			there = found.size;
		f->filetype = FIO_TYPE_FILE;
		f->real_file_size = td->o.size ? td->o.size / td->o.nr_files : there;
		if (td_read(td) && there < f->real_file_size)
			result = lay_out(td, job, f, there);
		fio_file_set_size_known(f);
	}
	/* A session does not go along into another process. */
	if (job)
		dafs_cleanup(td);
	return result;
}

static int dafs_init(struct thread_data *td)
{
	return job_of(td) ? 0 : 1;
}

static int dafs_iomem_alloc(struct thread_data *td, size_t total)
{
	struct dafs_job *job = job_of(td);
	void *pointer;
	int64_t result;

	if (!job)
		return 1;
	result = dap_allocate(job->client, total, &pointer, &job->region);
	if (result < 0)
		return failed(td, "allocating", "memory", result);
	td->orig_buffer = pointer;
	return 0;
}

static void dafs_iomem_free(struct thread_data *td)
{
	struct dafs_job *job = td->io_ops_data;

	if (job && job->region) {
		dap_deregister(job->region);
		job->region = NULL;
	}
	td->orig_buffer = NULL;
}

static int dafs_open(struct thread_data *td, struct fio_file *f)
{
	struct dafs_job *job = job_of(td);
	uint32_t flags = 0;
	dap_file *file;
	int64_t result;

	if (!job)
		return 1;
	if (td_read(td) || td->o.verify)
		flags |= DAP_READ;
	if (td_write(td))
		flags |= DAP_WRITE | DAP_CREATE;
	result = dap_open(job->session, f->file_name, flags, 0644, NULL, &file);
	if (result < 0)
		return failed(td, "opening", f->file_name, result);
	FILE_SET_ENG_DATA(f, file);
	return 0;
}

static int dafs_close(struct thread_data *td, struct fio_file *f)
{
	int64_t result = dap_close(FILE_ENG_DATA(f));

	FILE_SET_ENG_DATA(f, NULL);
	return result < 0 ? failed(td, "closing", f->file_name, result) : 0;
}

static int dafs_unlink(struct thread_data *td, struct fio_file *f)
{
	struct dafs_job *job = job_of(td);
	int64_t result = job ? dap_unlink(job->session, f->file_name) : -ENOTCONN;

	return result < 0 ? (int)-result : 0;
}

static enum fio_q_status dafs_queue(struct thread_data *td, struct io_u *io_u)
{
	struct dafs_job *job = td->io_ops_data;
	dap_file *file = FILE_ENG_DATA(io_u->file);
	dap_memory memory = {
		.pointer = io_u->xfer_buf,
		.length = io_u->xfer_buflen,
		.region = job->region,
	};
	int64_t result;

	fio_ro_check(td, io_u);
	if (io_u->ddir == DDIR_READ)
		result = dap_read_async(file, &memory, 1, io_u->offset, job->group, io_u, NULL);
	else if (io_u->ddir == DDIR_WRITE)
		result = dap_write_async(file, &memory, 1, io_u->offset, DAP_UNSTABLE, job->group,
					 io_u, NULL);
	else if (ddir_sync(io_u->ddir))
		result = dap_fsync_async(file, job->group, io_u, NULL);
	else
		result = -EOPNOTSUPP;
	if (result == 0)
		return FIO_Q_QUEUED;
	io_u->engine_data = NULL;
	io_u->error = (int)-result;
	td_verror(td, io_u->error, "submitting");
	return FIO_Q_COMPLETED;
}

static int dafs_getevents(struct thread_data *td, unsigned int min, unsigned int max,
			  const struct timespec *t)
{
	struct dafs_job *job = td->io_ops_data;
	int64_t timeout = t ? t->tv_sec * 1000 + t->tv_nsec / 1000000 : DAP_FOREVER;
	int64_t result;

	if (max > td->o.iodepth)
		max = td->o.iodepth;
	result = dap_wait(job->group, min, min ? timeout : 0, job->completions, max);
	if (result < 0)
		failed(td, "waiting", "for transfers", result);
	return (int)result;
}

static struct io_u *dafs_event(struct thread_data *td, int event)
{
	struct dafs_job *job = td->io_ops_data;
	const dap_completion *done = &job->completions[event];
	struct io_u *io_u = done->context;

	/* Text of a failure, until the next wait. */
	io_u->engine_data = (void *)done->text;
	if (done->result < 0)
		io_u->error = (int)-done->result;
	else if (!ddir_sync(io_u->ddir))
		io_u->resid = io_u->xfer_buflen - (unsigned long)done->result;
	return io_u;
}

/* Why a transfer failed; fio frees it. */
static char *dafs_errdetails(struct io_u *io_u)
{
	const char *text = io_u->engine_data;

	return strdup(text ? text : dap_error_text());
}

/* fio looks for this name. */
struct ioengine_ops ioengine = {
	.name = "dafs",
	.version = FIO_IOOPS_VERSION,
	.setup = dafs_setup,
	.init = dafs_init,
	.queue = dafs_queue,
	.getevents = dafs_getevents,
	.event = dafs_event,
	.errdetails = dafs_errdetails,
	.cleanup = dafs_cleanup,
	.open_file = dafs_open,
	.close_file = dafs_close,
	.unlink_file = dafs_unlink,
	.iomem_alloc = dafs_iomem_alloc,
	.iomem_free = dafs_iomem_free,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
	.options = options,
	.option_struct_size = sizeof(struct dafs_options),
};
