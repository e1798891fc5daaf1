package conformance

import (
	"database/sql"
	"strconv"
	"strings"
	"time"
)

// Flavor is the SQL of one database. A field that is empty says that the
// database, or its driver, cannot do it: cases that need it do not run there.
type Flavor struct {
	Name string

	// Dollar is true where placeholders are $1, $2, … instead of ?.
	Dollar bool

	// Types translates the fake's names of column types, where they differ.
	Types map[string]string

	ConnectionID string // a query for an integer that names the session
	Sleep        string // a query that takes about ten seconds
	Syntax       string // a text that is no SQL
	Series       string // a query for the integers 0…999, one each row
	Breaking     string // a query that fails after at least one row
	Multi        string // several queries in one text, without arguments
	MultiExec    string // two INSERTs into t (a INT), without arguments
	SetVar       string // sets a variable of the session to 'x'
	ShowVar      string // a query for that variable
	TempTable    string // creates the temporary table tmp (a INT)
	Isolation    string // a query for the isolation level of the transaction
	Named        string // a query for one named argument, "arg"
	Insert       string // inserts one row in t (a INT, b TEXT), arguments both

	Isolations []sql.IsolationLevel // that BeginTx can ask for
	ReadOnly   bool                 // BeginTx can ask for it

	// Values are stored and read back, one column type each.
	Values []TypedValue

	// Own are statements with arguments of types that only the driver knows.
	// The values are opaque to this package.
	Own []OwnArgs
}

// TypedValue is a column type of a database and a value for it.
type TypedValue struct {
	Type  string
	Value any

	// Into makes a pointer to scan into, besides *any; nil scans into *any
	// alone.
	Into func() any
}

// OwnArgs is a query with arguments of the driver's own types.
type OwnArgs struct {
	Name  string
	Query string
	Args  []any
}

// Needs is what a case cannot do without.
type Needs uint32

// The names are those of the fields of Flavor; OnFake needs the fake server.
const (
	OnFake Needs = 1 << iota
	ConnectionID
	Sleep
	Series
	Breaking
	Multi
	MultiExec
	SessionVar
	TempTable
	Isolation
	ReadOnly
	Named
	Own
)

func (n Needs) has(other Needs) bool { return n&other == other }

func (f *Flavor) provides() Needs {
	var n Needs
	add := func(need Needs, provided bool) {
		if provided {
			n |= need
		}
	}
	add(OnFake, f.Name == fakeFlavor.Name)
	add(ConnectionID, f.ConnectionID != "")
	add(Sleep, f.Sleep != "")
	add(Series, f.Series != "")
	add(Breaking, f.Breaking != "")
	add(Multi, f.Multi != "")
	add(MultiExec, f.MultiExec != "")
	add(SessionVar, f.SetVar != "" && f.ShowVar != "")
	add(TempTable, f.TempTable != "")
	add(Isolation, f.Isolation != "" && len(f.Isolations) > 0)
	add(ReadOnly, f.ReadOnly)
	add(Named, f.Named != "")
	add(Own, len(f.Own) > 0)
	return n
}

// rebind turns the placeholders into those of the flavor. No statement of the
// suite has a question mark that is anything else.
func (f *Flavor) rebind(query string) string {
	if !f.Dollar {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// leapDay has microseconds, which is what most databases keep.
var leapDay = time.Date(2024, 2, 29, 13, 14, 15, 123456000, time.UTC)

func into[T any]() func() any { return func() any { return new(T) } }
