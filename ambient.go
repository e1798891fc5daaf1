package pooldriver

import (
	"fmt"
)

// AmbientMode says what happens to a statement of a task, other than through
// the *sql.Tx, while a transaction of the task is open.
type AmbientMode uint8

const (
	// AmbientAuto is AmbientJoin for tasks made by WithTask, NewTask, Do and
	// InTx, and httptask.Join. Implicit tasks (WithTaskKey, httptask.Separate) share
	// nothing; every other mode makes them share as the others do.
	AmbientAuto AmbientMode = iota
	// AmbientJoin runs it in the transaction. BeginTx begins a savepoint.
	AmbientJoin
	// AmbientWarn is AmbientJoin, and logs a warning, once per transaction.
	AmbientWarn
	// AmbientStrict is an error. BeginTx, and what runs in InTx, nest.
	AmbientStrict
)

var ambientModes = [...]string{"auto", "join", "warn", "strict"}

// String is the mode as a DSN spells it.
func (m AmbientMode) String() string {
	if int(m) < len(ambientModes) {
		return ambientModes[m]
	}
	return fmt.Sprintf("AmbientMode(%d)", uint8(m))
}
