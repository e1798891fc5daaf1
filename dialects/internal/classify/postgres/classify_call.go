package postgres

import (
	"math"

	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// A name before a parenthesis is called, unless the words around it make it something else.
// A word that the server reserves is never called. Any other word may be the name of a function of
// the program, even a word that is syntax elsewhere: SELECT set(1).

// afterOperand reports whether the token before the name ends an operand or a name, so that no call
// can follow: FROM t a(x, y), count(*) OVER (…), UPDATE t SET (a, b) = ….
func (c *classifier) afterOperand() bool {
	lx := &c.Lx
	if lx.Before() == sqltext.Close {
		return c.looseAt != anywhere && lx.BeforeAt() != int(c.looseAt)
	}
	return lx.AfterOperand(leads)
}

// leads are the words after which an expression may begin: the reserved words, the words that need
// AS to be a column's name, and other words that the grammar has there.
var leads = sqltext.Words(`
	all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
	current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
	distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral
	leading limit localtime localtimestamp not null offset on only or order placing primary references returning
	select session_user some symmetric system_user table then to trailing true union unique user using variadic
	when where window with
	authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left
	like natural notnull outer overlaps right similar tablesample verbose
	between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int
	integer interval json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar
	json_serialize json_table json_value least merge_action national nchar none normalize nullif numeric out overlay
	position precision real row setof smallint substring time timestamp treat trim values varchar xmlattributes
	xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
	by zone local escape rows range groups value key passing ref document content version path first next return call
	execute`)

// A clause word is syntax only after its lead word, such as BY after GROUP. Both have the same
// code.
const (
	afterGroup uint8 = iota + 1
	afterPrimary
	afterGrouping
	afterTime
	afterLeft
	afterCharacter
)

var (
	clauses = sqltext.NewNames(
		sqltext.Group{Code: afterGroup, Names: "by"},
		sqltext.Group{Code: afterPrimary, Names: "key"},
		sqltext.Group{Code: afterGrouping, Names: "sets"},
		sqltext.Group{Code: afterTime, Names: "zone"},
		sqltext.Group{Code: afterLeft, Names: "join"},
		sqltext.Group{Code: afterCharacter, Names: "varying"},
	)
	beforeClauses = sqltext.NewNames(
		sqltext.Group{Code: afterGroup, Names: "group order partition"},
		sqltext.Group{Code: afterPrimary, Names: "primary foreign"},
		sqltext.Group{Code: afterGrouping, Names: "grouping"},
		sqltext.Group{Code: afterTime, Names: "time"},
		sqltext.Group{Code: afterLeft, Names: "left right full inner outer cross natural"},
		sqltext.Group{Code: afterCharacter, Names: "character char bit nchar"},
	)
)

// isClause reports whether a word that the server does not reserve is syntax here.
func (c *classifier) isClause() bool {
	lx := &c.Lx
	code := clauses.Lookup(lx.Name())
	switch {
	case code != 0:
		return lx.Before() == sqltext.Word && beforeClauses.Lookup(lx.BeforeText()) == code
	case sqltext.Equal(lx.Name(), "cube"), sqltext.Equal(lx.Name(), "rollup"):
		return lx.AfterWords("group", "by")
	case sqltext.Equal(lx.Name(), "copy"):
		return lx.Before() == sqltext.Start
	case sqltext.Equal(lx.Name(), "insert"): // of MERGE
		ahead := *lx
		_, near := closing(&ahead)
		return near && lx.AfterWord("then") && (ahead.IsWord("values") || ahead.IsWord("overriding"))
	case sqltext.Equal(lx.Name(), "conflict"):
		return lx.AfterWord("on") && c.isConflict()
	}
	return c.isOperator()
}

// maxLookAhead bounds in tokens how far a look-ahead goes, so that the time to classify a
// text stays linear in its length.
const maxLookAhead = 100

// closing moves lx from the opening parenthesis last read past the closing parenthesis. at: the
// place of the closing parenthesis. near: it is within maxLookAhead.
func closing(lx *sqltext.Lexer) (at int, near bool) {
	depth := lx.Depth()
	for range maxLookAhead {
		if lx.Next(); lx.Ended() {
			return 0, false
		}
		if lx.Depth() < depth {
			at, _ = lx.Span()
			lx.Next()
			return at, true
		}
	}
	return 0, false
}

// isConflict reports whether DO, or a WHERE and then DO, follows the parentheses after ON CONFLICT.
// If not, the parentheses are the condition of a JOIN.
func (c *classifier) isConflict() bool {
	ahead := c.Lx
	if _, near := closing(&ahead); !near {
		return false
	}
	if !ahead.IsWord("where") {
		return ahead.IsWord("do")
	}
	for range maxLookAhead {
		if ahead.Next(); ahead.Ended() || ahead.IsWord("on") || ahead.IsWord("do") {
			break
		}
	}
	return ahead.IsWord("do")
}

// isOperator reports whether an operator follows OPERATOR(. If so, it notes that the name after the
// closing parenthesis may be a function.
func (c *classifier) isOperator() bool {
	ahead := c.Lx
	for ahead.Next(); ahead.IsName(); ahead.Next() {
		if ahead.Next() != sqltext.Dot {
			return false
		}
	}
	if tok := ahead.Token(); tok != sqltext.Operator && tok != sqltext.Cast {
		return false
	}
	c.loosen()
	return true
}

const anywhere = -1

// loosen notes that the name after the closing parenthesis may be a function. The opening
// parenthesis was just read.
func (c *classifier) loosen() {
	ahead, before := c.Lx, c.looseAt
	from, _ := ahead.Span()
	at, near := closing(&ahead)
	c.looseAt = int32(at)
	if pending := int(before) > from; pending || before == anywhere || !near || at > math.MaxInt32 {
		c.looseAt = anywhere
	}
}
