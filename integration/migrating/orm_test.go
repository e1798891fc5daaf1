package migrating

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"modernc.org/sqlite"

	_ "github.com/pooldriver/pooldriver/dialects/postgres"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/migrating/queries"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// Order is a row of the table orders, for gorm and bun.
type Order struct {
	bun.BaseModel `bun:"table:orders" gorm:"-"`

	ID   int64 `bun:",pk"`
	Name string
}

// names are those of the orders that the server has.
func names(t *testing.T, account testbed.Account) (found []string) {
	t.Helper()
	rows, err := account.Witness(t).QueryContext(t.Context(), "SELECT name FROM orders ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		found = append(found, name)
	}
	require.NoError(t, rows.Err())
	return found
}

func TestGormOnPostgres(t *testing.T) {
	db, account := onPostgres(t)
	ctx := t.Context()
	add := func() error {
		// page: gorm
		g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}), &gorm.Config{})
		if err != nil {
			return err
		}
		return g.WithContext(ctx).Create(&Order{ID: 1, Name: "one"}).Error
		// end
	}
	require.NoError(t, add())
	require.Equal(t, []string{"one"}, names(t, account))
}

func TestGormOnMySQL(t *testing.T) {
	db, _ := mariadb(t)
	// page: gormmysql
	g, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: db}), &gorm.Config{})
	// end
	require.NoError(t, err)
	require.NoError(t, g.AutoMigrate(&Order{}))
	require.NoError(t, g.Create(&Order{ID: 1, Name: "one"}).Error)
	require.Equal(t, "one", value[string](t, t.Context(), db, "SELECT name FROM orders"))
}

func TestBun(t *testing.T) {
	db, account := onPostgres(t)
	ctx := t.Context()
	add := func() error {
		// page: bun
		b := bun.NewDB(db, pgdialect.New())
		_, err := b.NewInsert().Model(&Order{ID: 1, Name: "one"}).Exec(ctx)
		return err
		// end
	}
	require.NoError(t, add())
	require.Equal(t, []string{"one"}, names(t, account))
}

// TestEnt: what is below ent's generated client.
func TestEnt(t *testing.T) {
	db, account := onPostgres(t)
	ctx := t.Context()
	// page: ent
	drv := entsql.OpenDB(dialect.Postgres, db)
	// end
	text, args := entsql.Dialect(dialect.Postgres).Insert("orders").Columns("id", "name").Values(1, "one").Query()
	require.NoError(t, drv.Exec(ctx, text, args, nil))
	require.Equal(t, []string{"one"}, names(t, account))
}

func TestSqlc(t *testing.T) {
	db, account := onPostgres(t)
	ctx := t.Context()
	add := func() error {
		// page: sqlc
		q := queries.New(db)
		return q.CreateOrder(ctx, queries.CreateOrderParams{ID: 1, Name: "one"})
		// end
	}
	require.NoError(t, add())
	require.Equal(t, []string{"one"}, names(t, account))
}

// TestTwoLibrariesInOneTransaction: gorm and code of sqlc, which know nothing of each other.
func TestTwoLibrariesInOneTransaction(t *testing.T) {
	db, account := onPostgres(t)
	ctx := t.Context()
	g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}), &gorm.Config{})
	require.NoError(t, err)
	q := queries.New(db)
	both := func() error {
		// page: together
		err := pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			if err := g.WithContext(ctx).Create(&Order{ID: 1, Name: "by gorm"}).Error; err != nil {
				return err
			}
			return q.CreateOrder(ctx, queries.CreateOrderParams{ID: 2, Name: "by sqlc"})
		}, pooldriver.Retry{})
		// end
		return err
	}
	mustExec(t, db, "CREATE UNIQUE INDEX ON orders (id)")
	mustExec(t, db, "INSERT INTO orders VALUES (2, 'zero')")
	require.ErrorContains(t, both(), "23505")
	require.Equal(t, []string{"zero"}, names(t, account), "gorm's row is rolled back with sqlc's")
	mustExec(t, db, "DELETE FROM orders")
	require.NoError(t, both())
	require.Equal(t, []string{"by gorm", "by sqlc"}, names(t, account))
}

// TestAStatementOfAnotherLibraryJoinsGormsTransaction in a task.
func TestAStatementOfAnotherLibraryJoinsGormsTransaction(t *testing.T) {
	db, account := onPostgres(t)
	ctx := t.Context()
	g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}), &gorm.Config{})
	require.NoError(t, err)
	q := queries.New(db)
	both := func() error {
		// page: gormtx
		err := pooldriver.Do(ctx, func(ctx context.Context) error {
			return g.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				if err := tx.Create(&Order{ID: 1, Name: "by gorm"}).Error; err != nil {
					return err
				}
				return q.CreateOrder(ctx, queries.CreateOrderParams{ID: 2, Name: "by sqlc"}) // joins
			})
		})
		// end
		return err
	}
	mustExec(t, db, "CREATE UNIQUE INDEX ON orders (id)")
	mustExec(t, db, "INSERT INTO orders VALUES (2, 'zero')")
	require.ErrorContains(t, both(), "23505")
	require.Equal(t, []string{"zero"}, names(t, account), "gorm's row is rolled back with sqlc's")
	mustExec(t, db, "DELETE FROM orders")
	require.NoError(t, both())
	require.Equal(t, []string{"by gorm", "by sqlc"}, names(t, account))
}

// TestTheNameSqliteIsTaken: as a program finds out that links a second driver of this name.
func TestTheNameSqliteIsTaken(t *testing.T) {
	const said = "sql: Register called twice for driver sqlite"
	require.PanicsWithValue(t, said, func() { sql.Register("sqlite", &sqlite.Driver{}) })
	require.True(t, strings.Contains(pages(t), said), "a search finds the page")
}
