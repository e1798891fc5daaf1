// Package examples has the examples of the root: a module of its own may require SQLite.
package examples

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

// The one line that differs from plain database/sql.
func ExampleNew() {
	db := sql.OpenDB(pooldriver.New(":memory:?pool_max_conns=4"))
	defer db.Close()

	var one int
	if err := db.QueryRow("select 1").Scan(&one); err != nil {
		panic(err)
	}
	fmt.Println(one)
	// Output: 1
}

// Every parameter is a field of Config, too.
func ExampleNew_options() {
	connector := pooldriver.New(":memory:", func(c *pooldriver.Config) {
		c.MaxConns = 4
		c.AcquireTimeout = 5 * time.Second
		c.AfterConnect = func(ctx context.Context, conn driver.Conn) error {
			_, err := conn.(driver.ExecerContext).ExecContext(ctx, "pragma cache_size = 500", nil)
			return err
		}
	})
	db := sql.OpenDB(connector)
	defer db.Close()

	var size int
	if err := db.QueryRow("pragma cache_size").Scan(&size); err != nil {
		panic(err)
	}
	fmt.Println(size)
	// Output: 500
}

// Open tells at once what is wrong, without repeating the DSN.
func ExampleOpen() {
	_, err := pooldriver.Open("sqlite:shop.db?pool_max_conns=many")
	fmt.Println(err)
	// Output: pooldriver: the DSN's parameter pool_max_conns wants a whole number
}

// Any driver's connector can be wrapped.
func ExampleWrap() {
	inner, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer inner.Close()
	connector := dsnConnector{driver: inner.Driver(), dsn: "file:wrapped?mode=memory&cache=shared"}

	db := sql.OpenDB(pooldriver.Wrap(connector))
	defer db.Close()
	fmt.Println(db.Ping())
	// Output: <nil>
}

// dsnConnector is a driver.Connector for a driver that has none.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// Raw lends the driver's own connection, for what only the driver can do.
func ExampleRaw() {
	ctx := context.Background()
	db := sql.OpenDB(pooldriver.New(":memory:"))
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	err = pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
		image, err := dc.(interface{ Serialize() ([]byte, error) }).Serialize()
		fmt.Println(len(image) > 0)
		return err
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// A transaction that was begun by hand and forgotten does not reach the next
// borrower.
func ExampleConnector_Stats() {
	ctx := context.Background()
	connector := pooldriver.New(":memory:?pool_max_conns=1", func(c *pooldriver.Config) { c.Logger = quiet })
	db := sql.OpenDB(connector)
	defer db.Close()
	if _, err := db.Exec("create table t (a int)"); err != nil {
		panic(err)
	}

	conn, err := db.Conn(ctx)
	if err != nil {
		panic(err)
	}
	for _, q := range []string{"begin", "insert into t values (1)"} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			panic(err)
		}
	}
	conn.Close()

	var rows int
	if err := db.QueryRow("select count(*) from t").Scan(&rows); err != nil {
		panic(err)
	}
	s := connector.Stats()
	fmt.Printf("%d rows, %d rolled back, %d connection opened\n", rows, s.Rollbacks, s.Pool.Creates)
	// Output: 0 rows, 1 rolled back, 1 connection opened
}

var quiet = slog.New(slog.DiscardHandler)

// Credentials that rotate: the source is asked for them before they expire.
func ExampleCredentialSource() {
	source := func(ctx context.Context) (pooldriver.Credential, error) {
		token := "made-on-the-spot" // from a vault, or signed for the cloud's IAM
		return pooldriver.Credential{User: "app", Password: token, Expires: time.Now().Add(15 * time.Minute)}, nil
	}
	connector := pooldriver.New("postgres://db.internal/shop", func(c *pooldriver.Config) { c.Credentials = source })
	defer connector.Close()

	credential, _ := source(context.Background())
	credential.Expires = time.Time{}
	fmt.Printf("%+v\n", credential)
	// Output: user=app password=xxxxx
}

// What runs with a task's context is one session, however it reaches the
// database. What it leaves open is rolled back at the end.
func ExampleWithTask() {
	db := sql.OpenDB(pooldriver.New(":memory:", func(c *pooldriver.Config) { c.Logger = quiet }))
	defer db.Close()
	background := context.Background()
	execute(background, db, "create table basket (item text)")

	ctx, end := pooldriver.WithTask(background)
	defer end() // the second time it does nothing
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	execute(ctx, tx, "insert into basket values ('soap')")
	execute(ctx, db, "insert into basket values ('towel')") // joins the transaction
	fmt.Println("in the task:", number(ctx, db, "select count(*) from basket"))
	end() // nobody has committed

	fmt.Println("after it:", number(background, db, "select count(*) from basket"))
	fmt.Println(context.Cause(ctx) == pooldriver.ErrTaskEnded)
	// Output:
	// in the task: 2
	// after it: 0
	// true
}

// A new task shares nothing with the one around it: the record of an attempt
// stays when the attempt is rolled back.
func ExampleNewTask() {
	db := sql.OpenDB(pooldriver.New(":memory:"))
	defer db.Close()
	background := context.Background()
	execute(background, db, "create table orders (item text)")
	execute(background, db, "create table attempts (what text)")

	err := pooldriver.InTx(background, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		audit, end := pooldriver.NewTask(ctx)
		defer end()
		execute(audit, db, "insert into attempts values ('order of soap')")

		execute(ctx, db, "insert into orders values ('soap')")
		return errors.New("out of soap")
	})
	fmt.Println(err)
	fmt.Println("orders:", number(background, db, "select count(*) from orders"))
	fmt.Println("attempts:", number(background, db, "select count(*) from attempts"))
	// Output:
	// out of soap
	// orders: 0
	// attempts: 1
}

// Outside is for statements that belong to nobody's session. Here it leaves a
// task whose session has a temporary table.
func ExampleOutside() {
	db := sql.OpenDB(pooldriver.New(":memory:"))
	defer db.Close()
	ctx, end := pooldriver.WithTask(context.Background())
	defer end()
	execute(ctx, db, "create temporary table basket (item text)")

	const query = "select count(*) from sqlite_temp_schema where name = 'basket'"
	fmt.Println("in the task:", number(ctx, db, query))
	fmt.Println("outside:", number(pooldriver.Outside(ctx), db, query))
	// Output:
	// in the task: 1
	// outside: 0
}

// In a task a loop over open rows may use the database, also where there is
// one connection only.
func ExampleDo() {
	db := sql.OpenDB(pooldriver.New(":memory:?pool_max_conns=1"))
	defer db.Close()
	background := context.Background()
	execute(background, db, "create table stock (item text, pieces int)")
	execute(background, db, "insert into stock values ('soap', 1), ('towel', 2)")

	err := pooldriver.Do(background, func(ctx context.Context) error {
		rows, err := db.QueryContext(ctx, "select item from stock order by item")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var item string
			if err := rows.Scan(&item); err != nil {
				return err
			}
			if _, err := db.ExecContext(ctx, "update stock set pieces = pieces + 10 where item = ?", item); err != nil {
				return err
			}
			fmt.Println(item, number(ctx, db, "select pieces from stock where item = ?", item))
		}
		return rows.Err()
	})
	fmt.Println(err)
	// Output:
	// soap 11
	// towel 12
	// <nil>
}

// Functions that only take a *sql.DB and a context take part in one
// transaction, and one that begins a transaction of its own begins a savepoint.
func ExampleInTx() {
	db := sql.OpenDB(pooldriver.New(":memory:"))
	defer db.Close()
	background := context.Background()
	execute(background, db, "create table accounts (owner text primary key, balance int check (balance >= 0))")
	execute(background, db, "insert into accounts values ('ada', 50), ('bob', 0)")

	add := func(ctx context.Context, owner string, amount int) error {
		_, err := db.ExecContext(ctx, "update accounts set balance = balance + ? where owner = ?", amount, owner)
		return err
	}
	pay := func(amount int) error {
		return pooldriver.InTx(background, db, nil, func(ctx context.Context, _ *sql.Tx) error {
			if err := add(ctx, "bob", amount); err != nil {
				return err
			}
			return add(ctx, "ada", -amount)
		})
	}
	for _, amount := range []int{30, 40} {
		err := pay(amount)
		fmt.Printf("%d paid: %t, ada has %d, bob has %d\n", amount, err == nil,
			number(background, db, "select balance from accounts where owner = 'ada'"),
			number(background, db, "select balance from accounts where owner = 'bob'"))
	}
	// Output:
	// 30 paid: true, ada has 20, bob has 30
	// 40 paid: false, ada has 20, bob has 30
}

// Another transaction has the database's only write lock, and ends soon.
func ExampleRetry() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	connector := pooldriver.New("sqlite:" + dir + "/orders.db?_txlock=immediate&_busy_timeout=1")
	db := sql.OpenDB(connector)
	defer db.Close()
	execute(ctx, db, "create table orders (id int)")

	other, err := db.Begin()
	if err != nil {
		panic(err)
	}
	go func() {
		for connector.Stats().TxRetries == 0 {
			time.Sleep(time.Millisecond)
		}
		_ = other.Rollback()
	}()
	err = pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "insert into orders values (1)")
		return err
	}, pooldriver.Retry{})
	fmt.Println(err, "after retries:", connector.Stats().TxRetries > 0)
	fmt.Println(number(ctx, db, "select count(*) from orders"), "order")
	// Output:
	// <nil> after retries: true
	// 1 order
}

// What has begun finishes, what is new is refused.
func ExampleConnector_Drain() {
	ctx := context.Background()
	connector := pooldriver.New(":memory:")
	db := sql.OpenDB(connector)
	defer db.Close()
	execute(ctx, db, "create table orders (id int)")
	fmt.Println("ready:", connector.Ready(ctx) == nil)

	tx, err := db.Begin()
	if err != nil {
		panic(err)
	}
	drained := make(chan error)
	go func() { drained <- connector.Drain(ctx) }()
	for connector.Ready(ctx) == nil {
		runtime.Gosched()
	}
	fmt.Println("new ones are refused:", errors.Is(db.Ping(), pooldriver.ErrClosed))
	_, err = tx.Exec("insert into orders values (1)")
	fmt.Println("the transaction:", err, tx.Commit())
	fmt.Println("drained:", <-drained)
	// Output:
	// ready: true
	// new ones are refused: true
	// the transaction: <nil> <nil>
	// drained: <nil>
}

// Every statement of a request belongs to its tenant. On the server, a policy compares:
// CREATE POLICY own ON notes USING (tenant = current_setting('app.tenant', true)).
func ExampleWithSettings() {
	db := sql.OpenDB(pooldriver.New("postgres://app:secret@db/notes"))
	ofTenant := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tenant, _, _ := r.BasicAuth()
			ctx := pooldriver.WithSettings(r.Context(), pooldriver.Settings{"app.tenant": tenant})
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	http.Handle("/notes", ofTenant(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, number(r.Context(), db, "select count(*) from notes"), "notes")
	})))
}

// A program that has requests of its own, and knows nothing of tasks: what a request
// leaves open ends with it.
func ExampleConfig_taskKey() {
	connector := pooldriver.New("sqlite::memory:", func(c *pooldriver.Config) {
		c.TaskKey = func(ctx context.Context) (any, context.Context) {
			r, ok := ctx.Value(requestKey{}).(*request)
			if !ok {
				return nil, nil
			}
			return r, r.lifetime
		}
	})
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, done := newRequest()

	conn, err := db.Conn(ctx) // and never closed
	if err != nil {
		panic(err)
	}
	execute(ctx, conn, "begin")
	execute(ctx, conn, "create table basket (item text)")
	fmt.Println("open:", connector.Stats().Pool.Lent)

	done() // the request's end
	fmt.Println("baskets:", number(context.Background(), db, "select count(*) from sqlite_schema"))
	// Output:
	// open: 1
	// baskets: 0
}

// Who has a connection, and what it was used for last.
func ExampleConnector_Holders() {
	connector := pooldriver.New("sqlite::memory:")
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx := pooldriver.Label(context.Background(), "GET /orders")
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	execute(ctx, tx, "create table orders as select 'secret' as note")
	for _, h := range connector.Holders() {
		fmt.Println(h.Label, "|", h.Pin, "|", h.Statement)
	}
	// Output: GET /orders | transaction | create table orders as select ? as note
}

// A mistake in the DSN is known before anything is opened.
func ExampleConnector_Err() {
	connector := pooldriver.New("sqlite::memory:?pool_max_conn=3")
	fmt.Println(connector.Err())
	// Output: pooldriver: unknown parameter pool_max_conn in the DSN; did you mean pool_max_conns?
}

// A statement that gets no connection in time says what the pool looked like.
func ExampleAcquireError() {
	db := sql.OpenDB(pooldriver.New("sqlite::memory:?pool_max_conns=1&pool_acquire_timeout=10ms"))
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	execute(context.Background(), conn, "select 1") // it has the only connection

	_, err = db.Exec("select 1")
	var acquire *pooldriver.AcquireError
	if errors.As(err, &acquire) {
		fmt.Println(errors.Is(err, pooldriver.ErrTimeout), acquire.Active, "of", acquire.Max)
	}
	// Output: true 1 of 1
}

// A label names a piece of work wherever its connection is shown.
func ExampleLabel() {
	connector := pooldriver.New("sqlite::memory:")
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx := pooldriver.Label(context.Background(), "nightly report")
	rows, err := db.QueryContext(ctx, "select 1 union all select 2")
	if err != nil {
		panic(err)
	}
	defer rows.Close()
	rows.Next()
	fmt.Println(connector.Holders()[0].Label)
	// Output: nightly report
}

// A service is ready where a statement would get a connection.
func ExampleConnector_Ready() {
	connector := pooldriver.New("sqlite::memory:")
	db := sql.OpenDB(connector)
	fmt.Println(connector.Ready(context.Background()))
	db.Close()
	fmt.Println(errors.Is(connector.Ready(context.Background()), pooldriver.ErrClosed))
	// Output:
	// <nil>
	// true
}

// request is what ExampleConfig_taskKey finds in its contexts.
type request struct{ lifetime context.Context }

type requestKey struct{}

func newRequest() (context.Context, context.CancelFunc) {
	lifetime, done := context.WithCancel(context.Background())
	return context.WithValue(lifetime, requestKey{}, &request{lifetime}), done
}

func execute(ctx context.Context, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string) {
	if _, err := on.ExecContext(ctx, query); err != nil {
		panic(err)
	}
}

func number(ctx context.Context, db *sql.DB, query string, args ...any) (n int) {
	if err := db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		panic(err)
	}
	return n
}

// A program that keeps state reads it at each gap. The first notification is one.
func ExampleConnector_Listen() {
	connector := pooldriver.New("postgres://app:secret@db/shop") // imports dialects/postgres
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	err := connector.Listen(ctx, "orders", func(ctx context.Context, n pooldriver.Notification) {
		if n.Gap {
			fmt.Println("open orders:", number(ctx, db, "SELECT count(*) FROM orders WHERE open"))
			return
		}
		fmt.Println("order", n.Payload)
	})
	if err != nil {
		panic(err)
	}
}
