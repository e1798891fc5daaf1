// Package riverpooldriver is a driver of River (github.com/riverqueue/river), the job queue, over a [pgxpooldriver.Pool]. River,
// gorm and sqlc then have one pool, one limit, and one transaction:
//
//	connector := pooldriver.New(dsn)
//	db := sql.OpenDB(connector)          // for gorm
//	pool := pgxpooldriver.New(connector) // for sqlc
//	client, err := river.NewClient(riverpooldriver.New(pool), &river.Config{Queues: queues, Workers: workers})
//
//	err = pooldriver.Do(ctx, func(ctx context.Context) error {
//		return g.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
//			if err := tx.Create(&order).Error; err != nil {
//				return err
//			}
//			_, err := client.Insert(ctx, Ship{Order: order.ID}, nil) // in gorm's transaction, because of ctx
//			return err
//		})
//	})
//
// The statements are those of River's own driver riverpgxv5. InsertTx and the others take the [pgx.Tx] of Begin of the Pool, or
// any other one.
//
// # What is different from riverpgxv5
//
//   - In a task ([pooldriver.WithTask]) Insert and the others join the transaction of the task. Start a client with a context outside of
//     tasks: what it does in the background would belong to the task.
//   - The client listens by [pooldriver.Connector.Listen], so all clients and listeners of a Connector share one connection,
//     beyond pool_max_conns. Config.ListenDSN and pool_listen_ping hold for it. When it is lost, it is replaced within
//     milliseconds, and the Connector's log says so; River sees nothing of it. A job whose notification was missed begins with the next poll
//     (FetchPollInterval), as it does with riverpgxv5.
//   - Notifications of different topics may change places. River does not rely on their order.
//   - A Connector that cannot listen (Wrap with OnNotification, PgBouncer in transaction mode without a ListenDSN) is an error of
//     Start, unless River's PollOnly is set.
//   - A transaction that River begins takes its connection with its first statement.
//   - Under overload (pool_queue_target) River's completions, elections and changes of state are not refused. Its fetches, which it tries
//     again, and Insert are refused as other statements are.
//   - The Conn of River's transactions is nil: lent, it would cost a cleaning.
//
// River says that the interface of its drivers may change in any version. A version of this module works with the versions of River
// that its go.mod allows and that have the same interface; if they do not fit, the program does not compile.
package riverpooldriver
