package sandboxes

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/XSAM/otelsql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/stretchr/testify/suite"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
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

// TestSandboxConnectorBeneathATracingLibrary: the program's handle is not ours, and its Connector is.
func TestSandboxConnectorBeneathATracingLibrary(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	t.Run("test", func(t *testing.T) {
		traced, ctx := otelsql.OpenDB(sandbox.Connector(t, s.connector)), t.Context()
		defer traced.Close()
		require.NoError(t, pooldriver.InTx(ctx, traced, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := traced.ExecContext(ctx, "INSERT INTO ledger VALUES ($1, 'a')", 1)
			return err
		}))
		var n int
		require.NoError(t, traced.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
		require.Equal(t, 1, n)
		require.Zero(t, count(t, s.witness, "SELECT count(*) FROM ledger"))
	})
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

// note is a row of the table ledger.
type note struct {
	bun.BaseModel `bun:"table:ledger"`

	ID   int32 `bun:",pk"`
	Note string
}

// TestSandboxUnderBun: its nested transactions are savepoints by text.
func TestSandboxUnderBun(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	undone := errors.New("undone")
	for range 2 { // the second finds nothing of the first
		t.Run("test", func(t *testing.T) {
			ctx := t.Context()
			db := bun.NewDB(sandbox.DB(t, s.connector), pgdialect.New())
			require.NoError(t, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewInsert().Model(&[]note{{ID: 1, Note: "a"}, {ID: 2, Note: "b"}}).Exec(ctx)
				require.NoError(t, err)
				require.ErrorIs(t, tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					_, err := tx.NewDelete().Model((*note)(nil)).Where("id = ?", 1).Exec(ctx)
					require.NoError(t, err)
					_, err = tx.NewInsert().Model(&note{ID: 2}).Exec(ctx)
					require.ErrorContains(t, err, "23505")
					return undone
				}), undone)
				return nil
			}))
			require.ErrorIs(t, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewDelete().Model((*note)(nil)).Where("TRUE").Exec(ctx)
				require.NoError(t, err)
				return undone
			}), undone)
			rows, err := db.NewSelect().Model((*note)(nil)).Rows(ctx)
			require.NoError(t, err)
			for rows.Next() {
				var n note
				require.NoError(t, db.ScanRow(ctx, rows, &n))
				n.Note += "!"
				_, err := db.NewUpdate().Model(&n).WherePK().Exec(ctx)
				require.NoError(t, err)
			}
			require.NoError(t, rows.Close())
			var found []note
			require.NoError(t, db.NewSelect().Model(&found).Order("id").Scan(ctx))
			require.Equal(t, []note{{ID: 1, Note: "a!"}, {ID: 2, Note: "b!"}}, found)
		})
	}
}

// TestSandboxUnderEnt: the driver under ent's generated code, with the statements of its builders.
func TestSandboxUnderEnt(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	insert := func(ctx context.Context, on dialect.ExecQuerier, id int) error {
		text, args := entsql.Dialect(dialect.Postgres).Insert("ledger").Columns("id", "note").Values(id, "a").Returning("id").Query()
		rows := &entsql.Rows{}
		if err := on.Query(ctx, text, args, rows); err != nil {
			return err
		}
		defer rows.Close()
		_, err := entsql.ScanInt(rows)
		return err
	}
	for range 2 {
		t.Run("test", func(t *testing.T) {
			ctx, end := pooldriver.WithTask(t.Context()) // two transactions nest
			defer end()
			d := entsql.OpenDB(dialect.Postgres, sandbox.DB(t, s.connector))
			outer, err := d.Tx(ctx)
			require.NoError(t, err)
			require.NoError(t, insert(ctx, outer, 1))
			inner, err := d.BeginTx(ctx, &entsql.TxOptions{})
			require.NoError(t, err)
			require.NoError(t, insert(ctx, inner, 2))
			require.ErrorContains(t, insert(ctx, inner, 2), "23505")
			require.NoError(t, inner.Rollback())
			require.NoError(t, insert(ctx, outer, 3))
			require.NoError(t, outer.Commit())

			undone, err := d.Tx(ctx)
			require.NoError(t, err)
			require.NoError(t, undone.Exec(ctx, "DELETE FROM ledger", []any{}, nil))
			require.NoError(t, undone.Rollback())
			query, args := entsql.Dialect(dialect.Postgres).Select("id").From(entsql.Table("ledger")).OrderBy("id").Query()
			rows := &entsql.Rows{}
			require.NoError(t, d.Query(ctx, query, args, rows))
			var ids []int
			require.NoError(t, entsql.ScanSlice(rows, &ids))
			require.NoError(t, rows.Close())
			require.Equal(t, []int{1, 3}, ids)
		})
	}
}

// TestSandboxUnderSqlc: the code is as sqlc generates it.
func TestSandboxUnderSqlc(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres)
	for range 2 {
		t.Run("test", func(t *testing.T) {
			ctx := t.Context()
			db := sandbox.DB(t, s.connector)
			q := New(db)
			require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
				in := q.WithTx(tx)
				for id := range int32(3) {
					_, err := in.CreateNote(ctx, CreateNoteParams{ID: id, Note: "a"})
					require.NoError(t, err)
				}
			}))
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = q.WithTx(tx).CreateNote(ctx, CreateNoteParams{ID: 3, Note: "undone"})
			require.NoError(t, err)
			_, err = q.WithTx(tx).CreateNote(ctx, CreateNoteParams{ID: 3})
			require.ErrorContains(t, err, "23505")
			require.NoError(t, tx.Rollback())
			notes, err := q.ListNotes(ctx)
			require.NoError(t, err)
			require.Len(t, notes, 3)

			prepared, err := Prepare(ctx, db)
			require.NoError(t, err)
			_, err = prepared.CreateNote(ctx, CreateNoteParams{ID: 4, Note: "b"})
			require.NoError(t, err)
			require.NoError(t, inTx(t, db, func(tx *sql.Tx) {
				notes, err := prepared.WithTx(tx).ListNotes(ctx)
				require.NoError(t, err)
				require.Len(t, notes, 4)
			}))
			require.NoError(t, prepared.Close())
		})
	}
}
