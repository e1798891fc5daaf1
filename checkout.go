package pooldriver

import (
	"slices"

	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// checkout is the time between database/sql taking a virtual connection and putting it
// back. A virtual connection has one, which begins anew each time. database/sql's lock on
// the virtual connection protects it.
type checkout struct {
	connector *core
	private   binding // of checkouts without a task

	// The connection that is attached, and the binding that has it, nil before the first
	// operation; and what is known since the connection was attached.
	real     *realConn
	bound    *binding
	scope    *task.Scope     // of InTx
	label    *string         // of the context that has attached it; nil: none
	from     *task.Task      // whose context the statement's was derived from, beyond the task
	separate bool            // in a task, and keeping to itself: AmbientSeparate
	touched  bool            // something has happened on it: an operation cannot be moved to another one
	executed bool            // namely the execution of a statement
	open     *rows           // the last rows that it has opened, until something else happens
	spare    *rows           // closed, to be used again
	last     *textcache.Text // of the last operation: in a loop it is the next one's, too
	tx       *transaction    // the innermost of its transactions that is open
	aging    []*text         // those with a generation

	// refusal is what every operation gets. errDriverPanicked: database/sql cannot end
	// this checkout, or it had a state.
	refusal error
	lent    *loan // of Raw
}

// text is the text of a virtual statement.
type text struct {
	query      string
	prepared   bool   // by the program; else it is the text of a query with arguments
	generation uint64 // see stmtcache.Generations; 0 where it does not matter
}

// endText forgets the generation of a text whose statement is closed.
func (c *checkout) endText(t *text) {
	if t.generation == 0 {
		return
	}
	c.connector.generations.Close(t.query)
	t.generation = 0
	c.aging = slices.DeleteFunc(c.aging, func(other *text) bool { return other == t })
}
