package sandbox

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// Texts that begin and end transactions. On the server they would end the transaction of the test.

// The words that controls returns, and one that it does not return: for savepoints.
const (
	beginning = "begin"
	ending    = "commit"
	undoing   = "rollback"
	ignoring  = "isolation level"
	inside    = "savepoint"
)

// controls returns what a text does to the transaction of the program; empty: nothing. The error
// is of a text that a sandbox cannot execute.
func (g *guard) controls(text string) (string, error) {
	st := g.stage
	if st.judge != nil && st.judge.Ignores(text) {
		return ignoring, nil
	}
	effect := st.dialect.Effect(text)
	if effect&dialects.TxControl == 0 || effect&dialects.Suspect != 0 {
		return "", nil // the server refuses a COMMIT in a procedure that is called in a transaction
	}
	if dialects.MayBeScript(text) {
		for part := range strings.SplitSeq(text, ";") {
			if word, err := g.controlsOne(part, text); word != "" || err != nil {
				return "", cmp.Or(err, st.refused(text))
			}
		}
		return "", nil
	}
	return g.controlsOne(text, text)
}

// controlsOne is controls for one statement of a text.
func (g *guard) controlsOne(statement, text string) (string, error) {
	st := g.stage
	if st.dialect.Effect(statement)&dialects.TxControl == 0 {
		return "", nil
	}
	words := st.wordsOf(statement)
	if len(words) == 0 {
		return "", st.refused(text)
	}
	switch word := wordOf(words[0], words[1:]); word {
	case "":
		return "", st.refused(text)
	case inside:
		return "", g.inTx(words[0])
	case beginning:
		if is := st.traits.Begins; is != nil && (st.tx != nil || !is.MatchString(strings.Join(words, " "))) {
			return "", nil // the server says what is wrong with it
		}
		return word, nil
	default:
		return word, nil
	}
}

// wordsOf are the words and commas of a statement that has no literals.
func (st *stage) wordsOf(statement string) []string {
	return strings.Fields(strings.ReplaceAll(strings.TrimRight(strings.ToLower(st.brief(statement)), "; "), ",", " , "))
}

// wordOf returns what a statement with these first words does; empty: it is not known.
func wordOf(first string, rest []string) string {
	plain := len(rest) == 0 || len(rest) == 1 && (rest[0] == "transaction" || rest[0] == "work")
	switch first {
	case "begin", "start":
		return beginning
	case "savepoint", "release":
		return inside
	case "rollback", "abort":
		if slices.Contains(rest, "to") {
			return inside
		}
		if plain {
			return undoing
		}
	case "commit", "end":
		if plain {
			return ending
		}
	}
	return ""
}

// inTx returns an error unless a transaction of the program is open: the statement would act on the
// transaction of the test.
func (g *guard) inTx(word string) error {
	if g.stage.tx != nil {
		return nil
	}
	return fmt.Errorf("sandbox: %s outside of a transaction: begin one first", strings.ToUpper(word))
}

func (st *stage) refused(text string) error {
	return fmt.Errorf("sandbox: a text that begins or ends a transaction in this way would end the transaction of the test, and is not executed: %s; use BeginTx, or BEGIN, COMMIT and ROLLBACK as texts of their own, or sandbox.Database", st.brief(text))
}

// control begins or ends the transaction of the program by a text.
func (g *guard) control(ctx context.Context, word, text string) error {
	st := g.stage
	if err := g.ready(ctx); err != nil {
		return err
	}
	if word == ignoring {
		st.tell.note(noteIsolation)
		return nil
	}
	g.effect |= dialects.TxControl
	switch {
	case word == beginning:
		if st.tx != nil { // MySQL
			if err := st.commit(); err != nil {
				return err
			}
		}
		return st.begin(st.optionsOf(text))
	case word == ending:
		return st.commit()
	}
	return st.rollback()
}

// optionsOf are the options of a transaction that a text begins.
func (st *stage) optionsOf(text string) (opts driver.TxOptions) {
	lower := strings.Join(st.wordsOf(text), " ")
	opts.ReadOnly = strings.Contains(lower, "read only")
	if strings.Contains(lower, "isolation level") {
		opts.Isolation = driver.IsolationLevel(sql.LevelSerializable) // any level: the level has no effect
	}
	return opts
}
