package shop

import (
	"database/sql"
	"flag"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/sandbox"
)

var (
	dsnFlag = flag.String("dsn", "sqlite:shop.db?_pragma=foreign_keys(1)", "the server")
	wayFlag = flag.String("way", "database", "how tests are kept apart: truncation, database or sandbox")
)

// migration is what a program writes once, for all of its tests.
var migration = sandbox.Migration{Files: Migrations, Run: Migrate}

// way returns a function that gives a shop to each test.
func way(t *testing.T) func(t *testing.T) Shop {
	ways := map[string]func(t *testing.T) func(t *testing.T) Shop{
		"database":   func(*testing.T) func(t *testing.T) Shop { return inDatabase },
		"sandbox":    sandboxed,
		"truncation": truncated,
	}
	w := ways[*wayFlag]
	require.NotNil(t, w, "-way is one of truncation, database, sandbox")
	return w(t)
}

func shop(db *sql.DB) Shop { return Shop{DB: db, Numbered: onPostgreSQL()} }

func onPostgreSQL() bool { return strings.HasPrefix(*dsnFlag, "postgres") }

func inDatabase(t *testing.T) Shop {
	return shop(sandbox.Database(t, *dsnFlag, migration).DB)
}

// truncated is what most programs do: all tests share one database, one after the other, and each
// begins with empty tables.
func truncated(t *testing.T) func(t *testing.T) Shop {
	db := sandbox.Database(t, *dsnFlag, migration).DB
	var turn sync.Mutex
	return func(t *testing.T) Shop {
		turn.Lock()
		t.Cleanup(turn.Unlock)
		for _, text := range truncation() {
			_, err := db.Exec(text)
			require.NoError(t, err)
		}
		return shop(db)
	}
}

// sandboxed gives each test a transaction in one database that all share.
func sandboxed(t *testing.T) func(t *testing.T) Shop {
	connector := pooldriver.New(sandbox.Database(t, *dsnFlag, migration).DSN())
	t.Cleanup(func() { require.NoError(t, connector.Close()) })
	return func(t *testing.T) Shop { return shop(sandbox.DB(t, connector)) }
}

// filled are the tables in which tests write. A program that forgets one of them has tests that
// fail when others ran before.
var filled = []string{"audit", "payments", "order_lines", "orders", "products", "customers"}

func truncation() (texts []string) {
	if onPostgreSQL() {
		return []string{"TRUNCATE audit, refunds, payments, parcels, shipments, order_lines, orders, reviews, product_tags, products, addresses, customers"}
	}
	// MySQL truncates no table to which a foreign key leads, and SQLite truncates none.
	for _, table := range filled {
		texts = append(texts, "DELETE FROM "+table)
	}
	return texts
}
