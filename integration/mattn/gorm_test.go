package mattn

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

// account and login are one and its dependents, as gorm maps them.
type account struct {
	ID     uint `gorm:"primaryKey"`
	Name   string
	Logins []login `gorm:"constraint:OnDelete:CASCADE"`
}

type login struct {
	ID        uint `gorm:"primaryKey"`
	AccountID uint
}

// renamed is account with another type of its column.
type renamed struct {
	ID   uint   `gorm:"primaryKey"`
	Name string `gorm:"type:varchar(40);not null"`
}

func (renamed) TableName() string { return "accounts" }

// migrate changes a column by gorm's own migrator, which rebuilds the table, and returns
// how many rows are left.
func migrate(t *testing.T, db *sql.DB) (accounts, logins int64) {
	t.Helper()
	// page: gormsqlite
	g, err := gorm.Open(sqlite.Dialector{Conn: db}, &gorm.Config{})
	// end
	require.NoError(t, err)
	g.Logger = logger.Discard
	require.NoError(t, g.AutoMigrate(&account{}, &login{}))
	require.NoError(t, g.Create(&account{Name: "a", Logins: []login{{}, {}}}).Error)
	require.NoError(t, g.Exec("PRAGMA foreign_keys = OFF").Error)
	require.NoError(t, g.Migrator().AlterColumn(&renamed{}, "Name"))
	require.NoError(t, g.Exec("PRAGMA foreign_keys = ON").Error)
	require.NoError(t, g.Model(&account{}).Count(&accounts).Error)
	require.NoError(t, g.Model(&login{}).Count(&logins).Error)
	require.Error(t, g.Create(&login{AccountID: 99}).Error, "foreign keys are in force again")
	return accounts, logins
}

func TestGormRebuildsATableAsOnTheBareDriver(t *testing.T) {
	const keys = "?_foreign_keys=1"
	file := func() string { return "file:" + filepath.Join(t.TempDir(), "x.db") }
	max := func(n int) pooldriver.Option { return func(c *pooldriver.Config) { quiet(c); c.MaxConns = n } }
	bare, err := sql.Open("sqlite3", file()+keys)
	require.NoError(t, err)
	bare.SetMaxOpenConns(1)
	dbs := map[string]*sql.DB{
		"bare":                 bare,
		"New, file":            sql.OpenDB(pooldriver.New(file()+"?_pragma=foreign_keys(1)", max(4))),
		"New, memory":          sql.OpenDB(pooldriver.New("file::memory:?_pragma=foreign_keys(1)", max(4))),
		"Wrap, file":           sql.OpenDB(pooldriver.Wrap(connector{file() + keys}, max(4))),
		"Wrap, file, one":      sql.OpenDB(pooldriver.Wrap(connector{file() + keys}, max(1))),
		"Wrap, private memory": sql.OpenDB(pooldriver.Wrap(connector{":memory:" + keys}, max(1))),
		"Wrap, shared memory":  sql.OpenDB(pooldriver.Wrap(connector{"file:gorm" + keys + "&mode=memory&cache=shared"}, max(4))),
	}
	for name, db := range dbs {
		t.Run(name, func(t *testing.T) {
			defer db.Close()
			accounts, logins := migrate(t, db)
			require.EqualValues(t, 1, accounts)
			require.EqualValues(t, 2, logins)
		})
	}
}
