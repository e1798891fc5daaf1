package classify

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// Reads says which texts of a database only read, and which texts ask for what the last statement
// has left.
type Reads struct {
	// First are the first words of statements that only read, unless a word or the name of a
	// function in them is in Not. The codes of Not are NotAnywhere and NotLocking.
	First, Not *sqltext.Names
	// Calls are the functions that only read. nil: all functions that leave the session as it is.
	Calls *sqltext.Names
	// Asks are the words that ask back, with the places where they do so.
	Asks *sqltext.Names
}

// Where a word of Reads.Not does more than read.
const (
	NotAnywhere uint8 = iota + 1
	NotLocking        // after FOR, KEY or IN: FOR SHARE, FOR KEY SHARE, LOCK IN SHARE MODE
)

// Where a word of Reads.Asks asks back. It is a set of bits.
const (
	AskCall     uint8 = 1 << iota // before a parenthesis: currval('s')
	AskEmpty                      // before (): LAST_INSERT_ID() but not LAST_INSERT_ID(1)
	AskVariable                   // after @@: @@identity
	AskShow                       // in SHOW and GET: SHOW WARNINGS
	AskValue                      // before VALUE: PREVIOUS VALUE FOR s
)

// OnlyReads reports whether a text, whose effect was found before, is known to read and do nothing
// else. A text that can be read in two ways is not known to read only. A text that locks rows does
// not only read: its locks last as long as its rows are open.
func (l *Language) OnlyReads(query string, effect dialects.Effect) bool {
	if effect != dialects.Clean {
		return false
	}
	r := l.Reads
	var lx sqltext.Lexer
	lx.Init(query, l.Rules, l.Readings[0])
	for lx.BeginStatement() {
		lx.SkipOpen(lx.Next())
		if !lx.Ended() && lx.WordIn(r.First) == 0 {
			return false
		}
		for !lx.Ended() {
			switch lx.Skim(r.Not) {
			case sqltext.Word:
				if r.Not.Lookup(lx.Name()) != NotLocking || locks(&lx) {
					return false
				}
			case sqltext.Call:
				if r.Not.Lookup(lx.Name()) != 0 || r.Calls != nil && r.Calls.Lookup(lx.Name()) == 0 {
					return false
				}
			}
		}
	}
	return lx.Doubt == 0 && !lx.Broken()
}

// locks reports whether the word SHARE, last read, is a clause that locks rows.
func locks(lx *sqltext.Lexer) bool {
	return lx.AfterWord("for") || lx.AfterWord("key") || lx.AfterWord("in")
}

// AsksBack reports whether a text asks for what the last statement has left.
func (l *Language) AsksBack(query string) bool {
	r := l.Reads
	var lx sqltext.Lexer
	lx.Init(query, l.Rules, l.Readings[0])
	for lx.BeginStatement() {
		lx.Next()
		shows := lx.IsWord("show") || lx.IsWord("get")
		for !lx.Ended() {
			lx.Skim(r.Asks)
			if asks(&lx, r.Asks.Lookup(lx.Name()), shows) {
				return true
			}
		}
	}
	return false
}

// asks reports whether the name last read asks back. code says in which places it does so.
func asks(lx *sqltext.Lexer, code uint8, shows bool) bool {
	if code == 0 {
		return false
	}
	ahead := *lx
	if lx.Token() != sqltext.Open {
		ahead.Next()
	}
	value, called := ahead.IsWord("value"), ahead.Token() == sqltext.Open
	empty := called && ahead.Next() == sqltext.Close
	return code&AskCall != 0 && called || code&AskEmpty != 0 && empty ||
		code&AskVariable != 0 && lx.Before() == sqltext.Operator && lx.BeforeText() == "@" || code&AskShow != 0 && shows || code&AskValue != 0 && value
}
