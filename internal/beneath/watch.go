package beneath

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/task"
)

// Watcher sees what the program does with one virtual connection: package sandbox.
type Watcher interface {
	// Take begins a checkout, and Give ends it.
	Take()
	Give()
	// Enter begins an operation, or refuses it. answered: nothing is to be done for it. Leave ends it; task is that of the
	// checkout, nil: it has none.
	Enter(ctx context.Context, use Use, text string) (answered bool, err error)
	Leave(task *task.Task)
	// Opened is called when the operation has given rows.
	Opened()
	// Waits is called when the operation has got no connection. nil: it tries once more.
	Waits(ctx context.Context, err error) error
	// Begun is called for each transaction, which ends with ctx, and Ended after it.
	Begun(ctx context.Context)
	Ended()
	// Prepared is called for each prepared statement, and Closed after it.
	Prepared(s driver.Stmt, text string)
	Closed(s driver.Stmt)
}

// Use says what an operation does.
type Use string

// The uses.
const (
	UseExec    Use = "a statement"
	UseQuery   Use = "a query"
	UsePrepare Use = "a prepared statement"
	UseBegin   Use = "a transaction"
	UseRaw     Use = "a function of Raw"
	UsePing    Use = "a ping"
	UseOther   Use = "a look at the connection"
)
