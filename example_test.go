package pooldriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
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
