package postgres

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// set classifies SET from the word after it on.
func (c *classifier) set() dialects.Effect {
	lx := &c.Lx
	lx.Next()
	switch {
	case lx.IsWord("transaction"), lx.IsWord("constraints"):
		if !c.isParameter() {
			return c.Skip(dialects.Clean)
		}
	case lx.IsWord("local"):
		if !c.isParameter() {
			lx.Next()
			return c.forget() | c.namesTemp()
		}
	}
	return c.Skip(dialects.Stateful | c.forget())
}

// namesTemp goes to the end of a SET LOCAL. Suspect: the SET may give a search path that begins
// with the temporary schema, and objects created there outlive the transaction.
func (c *classifier) namesTemp() dialects.Effect {
	effect, last := dialects.Clean, sqltext.EOF
	for lx := &c.Lx; !lx.Ended(); lx.Next() {
		isString := lx.Token() == sqltext.String
		if lx.IsName() && mayBeTempSchema(lx) || isString && (last == sqltext.String || mayNameTemp(lx.Text())) {
			effect = dialects.Suspect // strings side by side are one string
		}
		last = lx.Token()
	}
	return effect
}

// mayNameTemp reports whether a string may name the temporary schema. A string with escapes or
// quotes in it may.
func mayNameTemp(quoted string) bool {
	for i := range len(quoted) - 1 {
		if quoted[i] == '\\' || (quoted[i] == '\'') != (i == 0) || sqltext.HasPrefix(quoted[i:], "pg_temp") {
			return true
		}
	}
	return false
}

// isParameter reports whether the word just read, which looks like a keyword, is the name of a
// parameter: a dot, = or TO follows.
func (c *classifier) isParameter() bool {
	ahead := c.Lx
	tok := ahead.Next()
	return tok == sqltext.Dot || tok == sqltext.Operator || ahead.IsWord("to")
}

const (
	onlyNames uint8 = iota + 1
	everything
)

// namesDependOn are the parameters that decide what a statement's names mean. The server itself reads
// a prepared statement again when the search path has changed.
var namesDependOn = sqltext.NewNames(
	sqltext.Group{Code: onlyNames, Names: "search_path schema role authorization session_authorization"},
	sqltext.Group{Code: everything, Names: "all"},
)

// harmless are the parameters by which the server reads no text: a prepared statement is the same
// whatever their values are. A parameter that is missing from the list costs one preparation. The
// integration test TestNoSessionVariableReachesAStatement sets each of them.
var harmless = sqltext.Words(`
	application_name client_min_messages idle_in_transaction_session_timeout idle_session_timeout lock_timeout
	maintenance_work_mem statement_timeout synchronous_commit transaction_timeout work_mem
	characteristics default_transaction_deferrable default_transaction_isolation default_transaction_read_only
	transaction_deferrable transaction_isolation transaction_read_only`)

// ReadsBy reports whether the server may read texts by this parameter. Parameters with a dot in
// their name belong to programs, which read them when a statement is executed, and to extensions.
func ReadsBy(parameter string) bool {
	return !strings.Contains(parameter, ".") && harmless.Lookup(parameter) == 0
}

// changes is the effect of another value of a parameter on prepared statements.
func changes(parameter string) dialects.Effect {
	switch namesDependOn.Lookup(parameter) {
	case onlyNames:
		return dialects.ForgetPrepared
	case everything:
		return dialects.ForgetPrepared | dialects.Rereads
	}
	if ReadsBy(parameter) {
		return dialects.Rereads
	}
	return dialects.Clean
}

// forget returns the effect on prepared statements of the SET or RESET whose parameter's name was
// just read, and Unresettable for the seed, which SET LOCAL does not restore, or for a name that may
// be the seed.
func (c *classifier) forget() dialects.Effect {
	lx := &c.Lx
	if lx.IsWord("session") {
		lx.Next()
	}
	if !lx.IsName() {
		return dialects.Clean
	}
	if lx.Disguised() {
		return dialects.Stateful | dialects.Unresettable | dialects.ForgetPrepared | dialects.Rereads
	}
	if sqltext.Equal(lx.Name(), "seed") {
		return dialects.Stateful | dialects.Unresettable
	}
	if ahead := *lx; ahead.Next() == sqltext.Dot {
		return dialects.Clean
	}
	return changes(lx.Name())
}

// update looks at the table that an UPDATE changes. Its name may follow: [ONLY] [(] [schema.]table.
// Nothing is known of a name with escapes, U&"…".
func (c *classifier) update() dialects.Effect {
	ahead := c.Lx
	ahead.Next()
	if ahead.IsWord("only") {
		ahead.Next()
	}
	if ahead.Token() == sqltext.Open {
		ahead.Next()
	}
	for ahead.IsName() {
		if ahead.Disguised() {
			return dialects.Suspect
		}
		name := ahead.Name()
		switch next := ahead.Next(); {
		case next == sqltext.Dot:
			ahead.Next()
		case sqltext.Equal(name, "pg_settings"):
			return dialects.Stateful | dialects.ForgetPrepared | dialects.Rereads
		default:
			return dialects.Clean
		}
	}
	return dialects.Clean
}

// createModifiers are the words between CREATE and what is created.
var createModifiers = sqltext.NewNames(
	sqltext.Group{Code: sqltext.Modifier, Names: "or replace global local unlogged unique recursive"},
	sqltext.Group{Code: sqltext.Temporary, Names: "temp temporary"},
)

// createsTemp is the effect of a temporary table: the table hides another table of its name, and
// statements prepared while it exists have the types of its columns.
const createsTemp = dialects.Stateful | dialects.ForgetPrepared

const (
	createTable uint8 = iota + 1
	createRoutine
)

var createWords = sqltext.NewNames(
	sqltext.Group{Code: createTable, Names: "table materialized index"},
	sqltext.Group{Code: createRoutine, Names: "function procedure"},
)

// create classifies CREATE from the word after it on.
func (c *classifier) create() dialects.Effect {
	lx := &c.Lx
	temp := lx.SkipWords(createModifiers)&sqltext.Temporary != 0
	if lx.Token() != sqltext.Word {
		return c.query() | dialects.Suspect
	}
	effect := dialects.Clean
	if temp || c.namesTempSchema() {
		effect = createsTemp
	}
	switch createWords.Lookup(lx.Text()) {
	case createTable: // functions in it are calls only once a query begins
		c.unknown, c.words, c.dropped = dialects.Clean, tableWords, false
		body := c.query()
		if c.dropped && temp {
			effect = dialects.ForgetPrepared
		}
		return effect | body
	case createRoutine:
		return effect | c.routine()
	default:
		return c.Skip(effect)
	}
}

// namesTempSchema reports whether the object about to be created is put into
// the temporary schema: CREATE FUNCTION IF NOT EXISTS pg_temp.f.
func (c *classifier) namesTempSchema() bool {
	ahead := c.Lx
	for range 6 {
		if ahead.Next(); !ahead.IsName() {
			return false
		}
		if mayBeTempSchema(&ahead) {
			return true
		}
	}
	return false
}

var atomicWords = sqltext.Words("atomic")

// routine skips CREATE FUNCTION or PROCEDURE, with its body BEGIN ATOMIC … END.
func (c *classifier) routine() dialects.Effect {
	lx := &c.Lx
	for !lx.Ended() {
		if lx.Skim(atomicWords) == sqltext.Word && lx.AfterWord("begin") && !lx.SkipBody() {
			return dialects.Suspect
		}
	}
	return dialects.Clean
}

var explainOptions = sqltext.Words("analyze analyse verbose")

// explain classifies the statement that EXPLAIN explains: ANALYZE executes the statement.
func (c *classifier) explain() dialects.Effect {
	lx := &c.Lx
	lx.SkipWords(explainOptions)
	if lx.Token() == sqltext.Open {
		inside := *lx
		if inside.Next() == sqltext.Word && language.Head(&inside).Kind != headQuery {
			for depth := lx.Depth(); lx.Depth() >= depth && !lx.Ended(); {
				lx.Next()
			}
			if !lx.Ended() {
				lx.Next()
			}
		}
	}
	if lx.IsWord("explain") {
		return c.query() | dialects.Suspect
	}
	return c.statement()
}

// declare classifies DECLARE … CURSOR and the query after FOR.
func (c *classifier) declare() dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	for {
		lx.Next()
		switch {
		case lx.Ended():
			return effect
		case lx.IsWord("hold") && lx.AfterWord("with"):
			effect = dialects.Stateful
		case lx.IsWord("for"):
			return effect | c.query()
		}
	}
}
