//! t

pub struct UndoLog;
pub struct UndoId;
pub struct UndoConfig;
pub struct UndoError;
pub struct UndoId;
pub struct UndoConfig;
pub struct UndoError;
