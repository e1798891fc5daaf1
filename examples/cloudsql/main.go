// Command cloudsql counts the rows of a table in Google Cloud SQL. The connections go
// through Cloud SQL's own connector, which authorises and encrypts them:
//
//	go run . project:region:instance app@project.iam shop orders
package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"

	"cloud.google.com/go/cloudsqlconn"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: cloudsql INSTANCE USER DATABASE TABLE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, instance, user, database, table string) error {
	dialer, err := cloudsqlconn.NewDialer(ctx, cloudsqlconn.WithIAMAuthN())
	if err != nil {
		return err
	}
	defer dialer.Close()
	db := open(dialer, instance, user, database)
	defer db.Close() // before the dialer
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		return err
	}
	fmt.Println(n, "rows")
	return nil
}

// instanceDialer is *cloudsqlconn.Dialer.
type instanceDialer interface {
	Dial(ctx context.Context, instance string, options ...cloudsqlconn.DialOption) (net.Conn, error)
}

// open returns a pool of connections to the instance. The dialer encrypts them, so that
// sslmode is disable. It wants the instance, not an address: the host of the DSN is only
// a name for errors and logs.
func open(dialer instanceDialer, instance, user, database string) *sql.DB {
	dsn := fmt.Sprintf("host=cloudsql user='%s' dbname='%s' sslmode=disable pool_max_conns=10", user, database)
	return sql.OpenDB(pooldriver.New(dsn, func(c *pooldriver.Config) {
		c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.Dial(ctx, instance)
		}
	}))
}
