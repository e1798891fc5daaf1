package sandboxes

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/XSAM/otelsql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/stretchr/testify/suite"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
)

type author struct {
	ID    uint `gorm:"primaryKey"`
	Name  string
	Books []book
}

type book struct {
	ID       uint `gorm:"primaryKey"`
	Title    string
	AuthorID uint
}

// TestSandboxUnderAnORM: migrations, associations, nested transactions, rows of a loop.
func TestSandboxUnderAnORM(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	mustExec(t, s.witness, "CREATE SCHEMA own; GRANT ALL ON SCHEMA own TO PUBLIC")
	connector := pooldriver.New(s.account.URL("search_path=own"), quietly)
	defer connector.Close()
	for range 2 { // the second finds nothing of the first
		t.Run("test", func(t *testing.T) {
			g, err := gorm.Open(postgres.New(postgres.Config{Conn: sandbox.DB(t, connector)}), &gorm.Config{Logger: logger.Discard})
			require.NoError(t, err)
			require.NoError(t, g.AutoMigrate(&author{}, &book{}))
			require.NoError(t, g.Create(&author{Name: "Ä", Books: []book{{Title: "one"}, {Title: "two"}}}).Error)
			undone := errors.New("undone")
			require.NoError(t, g.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, tx.Create(&author{Name: "B"}).Error)
				require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
					require.NoError(t, tx.Create(&author{Name: "C"}).Error)
					return undone
				}), undone)
				return nil
			}))
			require.Error(t, g.Create(&author{ID: 1, Name: "again"}).Error)
			var found []author
			require.NoError(t, g.Preload("Books").Order("name").Find(&found).Error)
			require.Len(t, found, 2)
			rows, err := g.Model(&author{}).Rows()
			require.NoError(t, err)
			for rows.Next() {
				var a author
				require.NoError(t, g.ScanRows(rows, &a))
				require.NoError(t, g.Model(&a).Update("name", a.Name+"!").Error)
			}
			require.NoError(t, rows.Close())
		})
	}
}

func TestSandboxUnderSqlx(t *testing.T) {
	t.Parallel()
	db := sqlx.NewDb(sandbox.DB(t, onServer(t, testbed.Postgres).connector), "pgx")
	_, err := db.NamedExec("INSERT INTO ledger (id, note) VALUES (:id, :note)", []map[string]any{{"id": 1, "note": "a"}, {"id": 2, "note": "b"}})
	require.NoError(t, err)
	var notes []string
	require.NoError(t, db.Select(&notes, "SELECT note FROM ledger WHERE id IN ($1, $2) ORDER BY id", 1, 2))
	require.Equal(t, []string{"a", "b"}, notes)
}

// TestSandboxContextBeneathATracingLibrary: the program's handle is not ours, and its Connector is.
func TestSandboxContextBeneathATracingLibrary(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	traced := otelsql.OpenDB(s.connector)
	t.Run("test", func(t *testing.T) {
		ctx := sandbox.Context(t, traced)
		require.NoError(t, pooldriver.InTx(ctx, traced, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := traced.ExecContext(ctx, "INSERT INTO ledger VALUES ($1, 'a')", 1)
			return err
		}))
		var n int
		require.NoError(t, traced.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
		require.Equal(t, 1, n)
		require.NoError(t, traced.QueryRowContext(t.Context(), "SELECT count(*) FROM ledger").Scan(&n))
		require.Zero(t, n)
	})
	require.NoError(t, traced.Close())
}

// shop is a suite with a sandbox for all of its tests, and a level for each.
type shop struct {
	suite.Suite
	connector *pooldriver.Connector
	db        *sql.DB
}

func TestSandboxOfASuite(t *testing.T) {
	t.Parallel()
	suite.Run(t, &shop{connector: onServer(t, testbed.Postgres).connector})
}

func (s *shop) SetupSuite() {
	mustExec(s.T(), sandbox.DB(s.T(), s.connector), "INSERT INTO ledger VALUES (1, 'of the suite')")
}

func (s *shop) SetupTest() { s.db = sandbox.DB(s.T(), s.connector) }

func (s *shop) TestOne() { s.writes() }
func (s *shop) TestTwo() { s.writes() }

func (s *shop) writes() {
	mustExec(s.T(), s.db, "INSERT INTO ledger VALUES (2, 'of a test')")
	s.Equal(2, count(s.T(), s.db, "SELECT count(*) FROM ledger"))
}
