package postgres

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// do classifies DO, [LANGUAGE name] and a body in any order. It looks only for effects that no
// cleaning undoes. An unusual form counts as the worst.
func (c *classifier) do() (effect dialects.Effect) {
	lx := &c.Lx
	bodies := 0
	for lx.Next(); !lx.Ended(); lx.Next() {
		switch {
		case lx.IsWord("language"):
			if lx.Next(); !lx.IsName() || !sqltext.Equal(lx.Name(), "plpgsql") {
				effect = dialects.Unresettable
			}
		case lx.Token() == sqltext.String:
			if bodies++; bodies > 1 || mayBeUnresettable(lx.Text()) {
				effect = dialects.Unresettable
			}
		default: // E'…' or U&'…' among others
			effect = dialects.Unresettable
		}
	}
	return effect
}

// unresettableWords are the words by which PL/pgSQL may cause an effect that no cleaning undoes. A
// column with such a name costs a connection.
var unresettableWords = sqltext.Words("load seed execute")

// mayBeUnresettable looks into a body of PL/pgSQL, given with its quotes. PL/pgSQL has
// the lexical rules of SQL. In '…' the quotes are doubled: strings of the body are read as words of
// the body. So the classifier finds more words, not fewer.
func mayBeUnresettable(quoted string) bool {
	tag := 1
	if quoted[0] == '$' {
		tag = 2 + strings.IndexByte(quoted[1:], '$')
	} else if strings.Contains(quoted, `\`) {
		return true
	}
	if len(quoted) < 2*tag {
		return true // not closed
	}
	var c classifier
	lx := &c.Lx
	lx.Init(quoted[tag:len(quoted)-tag], lexical, sqltext.Reading{})
	name := false
	for tok := lx.Next(); tok != sqltext.EOF; tok = lx.Next() {
		switch {
		case lx.IsName():
			if lx.Disguised() || unresettableWords.Lookup(lx.Name()) != 0 {
				return true
			}
		case tok == sqltext.Open && name && c.call()&dialects.Unresettable != 0:
			return true
		}
		name = lx.IsName()
	}
	return lx.Broken() || lx.Doubt != 0
}
