package clones

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// note is what is written beside a template or a clone. A clone without a note is being made, or
// its maker was killed meanwhile.
type note struct {
	state state
	owner string    // of a used clone
	test  string    // of a used or kept clone
	until time.Time // of a template and of the stock: from then on they may be removed, if nobody uses them
}

type state string

const (
	isTemplate state = "template"
	inStock    state = "stock"
	isUsed     state = "used"
	isKept     state = "kept"
)

// String is the note as a comment on the server.
func (n note) String() string {
	switch n.state {
	case isUsed:
		return fmt.Sprintf("sandbox used %s %s", n.owner, n.test)
	case isKept:
		return fmt.Sprintf("sandbox kept %s", n.test)
	default:
		return fmt.Sprintf("sandbox %s %d", n.state, n.until.Unix())
	}
}

func readNote(comment string) note {
	words := append(strings.Fields(comment), "", "", "", "")
	if words[0] != "sandbox" {
		return note{}
	}
	n := note{state: state(words[1])}
	switch n.state {
	case isUsed:
		n.owner, n.test = words[2], words[3]
	case isKept:
		n.test = words[2]
	default:
		seconds, _ := strconv.ParseInt(words[2], 10, 64)
		n.until = time.Unix(seconds, 0)
	}
	return n
}

// expired reports whether a template or a clone of the stock may be removed.
func (n note) expired(now time.Time) bool {
	return (n.state == isTemplate || n.state == inStock) && now.After(n.until)
}

// listed is a template or a clone with its note.
type listed struct {
	name string
	note note
}

// forTest is the note of a clone that is made for the test, or for the stock if test is empty.
func (p *Plan) forTest(owner, test string) note {
	if test == "" {
		return note{state: inStock, until: time.Now().Add(p.Keep)}
	}
	return note{state: isUsed, owner: owner, test: test}
}
