// Package pgxpooldriver has the API of a pgxpool.Pool over the pool of a pooldriver.Connector. A program that mixes
// database/sql (gorm, goose) with code for pgx (sqlc, scany, by module riverpooldriver River) has one pool, one limit, and one transaction:
//
//	connector := pooldriver.New(dsn)
//	db := sql.OpenDB(connector)          // for gorm
//	pool := pgxpooldriver.New(connector) // for sqlc
//
//	err := pooldriver.Do(ctx, func(ctx context.Context) error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			// What runs with ctx, by db or by pool, is part of tx. Another BeginTx or Begin is a savepoint in it.
//		})
//	})
//
// # What is as with database/sql
//
// Every call takes the way that a call of the *sql.DB takes: it joins the task of its context ([pooldriver.WithTask]) and the
// transaction there, has the settings of its context ([pooldriver.WithSettings]), waits in the same queue, and its session is
// cleaned by what its text does, in every [pgx.QueryExecMode]. A query inside open rows of its task completes: the rows are read
// into memory, up to pool_nested_buffer. Labels, Holders, Drain and package sandbox know the calls. ErrTxLost, ErrTaskEnded,
// ErrDeadlock and the errors of a wait are pooldriver's.
//
// # What is as with pgxpool
//
// Types, errors of the server, batches, named arguments and tracers are pgx's. The context of Begin bounds nothing but the
// begin. Types that Config.AfterConnect registers on the *pgx.Conn are there for both. Statements are prepared and kept by
// pgx's cache on each connection, which the *sql.DB uses for queries with arguments, too: there is no second cache. StmtHits and
// StmtMisses of [pooldriver.Stats] count it.
//
// What a Conn has handed out (rows, results, transactions, large objects) is dead after Release, and what a transaction has handed
// out is dead after its end: further calls are errors. While rows are open, Begin outside of a task is an error, "conn busy".
//
// # What is different
//
//   - [Conn.Conn] and [Tx.Conn] lend pgx's own connection until Release, or until the transaction ends. Nobody knows
//     what is done with it, so the session is cleaned afterwards. If rows or a transaction that the program has opened on it are
//     open then, the session is closed. What the program keeps of the *pgx.Conn is its own, as with pgxpool: it must not use that
//     later. Other statements of its task wait for half a second
//     meanwhile, and then get an error. Rows that were open before cannot be read meanwhile. So it is with
//     [pgx.LargeObjects]. A lent connection is the place for WaitForNotification; Connector.Listen needs no place in the limit.
//   - CopyFrom lends the connection, too, while it runs: its source cannot use the same session.
//   - [Conn.Hijack] panics. A batch with [pgx.Batch.BeginTx], and [pgx.TxOptions] with BeginQuery or CommitQuery, are errors.
//   - Commit and Rollback close rows and results of the transaction that are open, whose error says so.
//   - Rows.Conn is nil: use Rows.TypeMap.
//   - Rows that were read into memory, because others needed their connection, end with the context of their query.
//   - A [pgx.QueryRewriter] other than NamedArgs and StrictNamedArgs costs a cleaning: what text it makes is not seen. It, and
//     methods of arguments that pgx calls to encode them, must not use the task.
//   - With a setting by which the server reads texts (the time zone), a batch is an error in QueryExecModeCacheStatement.
//   - In a task, a transaction with another one open inside it cannot be committed.
//   - Config, AcquireAllIdle and the hooks of pgxpool.Config have no counterpart here: see [pooldriver.Config].
package pgxpooldriver
