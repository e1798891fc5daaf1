package mysql

// TxEnders are the numbers of the errors at which the server rolls back the whole
// transaction. No driver takes the transaction's state from an error.
//
//   - 1213, ER_LOCK_DEADLOCK.
//   - 1020, ER_CHECKREAD: somebody else has changed the row since it was read.
//     MariaDB, where innodb_snapshot_isolation is on: by default since 11.6.2.
//   - 1206, ER_LOCK_TABLE_FULL.
var TxEnders = []int{1213, 1020, 1206}
