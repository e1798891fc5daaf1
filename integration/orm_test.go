package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/pooldriver/pooldriver/integration/testbed"
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

type bookWithPages struct {
	book
	Pages int
}

func (bookWithPages) TableName() string { return "books" }

// TestAnORMWorksUnchanged runs gorm over a *sql.DB of ours: migrations,
// associations, nested transactions, its own cache of prepared statements.
func TestAnORMWorksUnchanged(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		for _, prepare := range []bool{false, true} {
			t.Run(fmt.Sprintf("PrepareStmt=%t", prepare), func(t *testing.T) {
				db := wrapped.open(t, account, 2)
				g, err := gorm.Open(dialector(account.Server.Engine, db), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
				require.NoError(t, err)
				require.NoError(t, g.Migrator().DropTable(&book{}, &author{}))
				require.NoError(t, g.AutoMigrate(&author{}, &book{}))
				require.NoError(t, g.Create(&author{Name: "Ä", Books: []book{{Title: "one"}, {Title: "two"}}}).Error)

				no := errors.New("no")
				require.NoError(t, g.Transaction(func(tx *gorm.DB) error {
					if err := tx.Create(&author{Name: "B"}).Error; err != nil {
						return err
					}
					err := tx.Transaction(func(tx *gorm.DB) error {
						require.NoError(t, tx.Create(&author{Name: "C"}).Error)
						return no
					})
					require.ErrorIs(t, err, no)
					return nil
				}))

				var found []author
				require.NoError(t, g.Preload("Books").Order("name").Find(&found).Error)
				require.Len(t, found, 2, "the nested transaction was rolled back")

				require.NoError(t, g.AutoMigrate(&bookWithPages{}))
				require.NoError(t, db.Close())
				awaitBackends(t, account, 0)
			})
		}
	})
}

func dialector(engine testbed.Engine, db *sql.DB) gorm.Dialector {
	if engine == testbed.Postgres {
		return postgres.New(postgres.Config{Conn: db})
	}
	return mysql.New(mysql.Config{Conn: db})
}
