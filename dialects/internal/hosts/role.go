package hosts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// Role is what the parameter target_session_attrs asks of a server. Words and
// meanings are libpq's ("Parameter Key Words" in the manual of PostgreSQL).
type Role uint8

// The roles, by libpq's words.
const (
	Any           Role = iota // a server that accepts the login
	ReadWrite                 // sessions may write unless they say otherwise
	ReadOnly                  // sessions may not write
	Primary                   // not a standby
	Standby                   // a standby
	PreferStandby             // a standby, or any other server if there is none
)

var words = [...]string{"any", "read-write", "read-only", "primary", "standby", "prefer-standby"}

// RoleNames returns the values of target_session_attrs, for errors.
func RoleNames() string { return strings.Join(words[:], ", ") }

// ParseRole knows a role by its word.
func ParseRole(word string) (Role, bool) {
	i := slices.Index(words[:], word)
	return Role(max(i, 0)), i >= 0
}

func (r Role) String() string {
	if int(r) < len(words) {
		return words[r]
	}
	return "invalid"
}

// Server is what a server has said of itself.
type Server struct {
	Standby  bool   // it follows another server
	ReadOnly bool   // its sessions may not write: it is a standby, or its settings say so
	NotReady bool   // a node of a cluster that refuses statements for now
	Words    string // words for "it is a standby" if the server does not use this word
}

func (s Server) String() string {
	switch {
	case s.NotReady:
		return "a cluster's node that is not ready"
	case s.Standby && s.Words != "":
		return s.Words
	case s.Standby:
		return "a standby"
	case s.ReadOnly:
		return "read-only"
	}
	return "a primary that takes writes"
}

// Fit is how well a server fits a role.
type Fit uint8

// In rising order.
const (
	Unfit  Fit = iota
	Second     // if no server fits better
	Fits
)

// Of says how well a server fits.
func (r Role) Of(s Server) Fit {
	good := true
	switch r {
	case ReadWrite:
		good = !s.ReadOnly && !s.Standby
	case ReadOnly:
		good = s.ReadOnly || s.Standby
	case Primary:
		good = !s.Standby
	case Standby:
		good = s.Standby
	case PreferStandby:
		if !s.Standby && !s.NotReady {
			return Second
		}
	}
	if !good || s.NotReady {
		return Unfit
	}
	return Fits
}

// Refuse is the error of a server that does not fit a role.
func (r Role) Refuse(s Server) error {
	if r == Any {
		return wrong("the server is " + s.String())
	}
	return wrong(fmt.Sprintf("the server is %v, and target_session_attrs=%v asks for another", s, r))
}

// Still returns a wrong-role error if a server no longer fits a session. then: the server at
// connect. now: the server at present. Without a role, a server fits unless it accepted writes at
// connect and accepts none now. A second choice remains a second choice.
func (r Role) Still(then, now Server) error {
	switch {
	case now.NotReady:
	case r == Any:
		if !now.ReadOnly && !now.Standby || then.ReadOnly || then.Standby {
			return nil
		}
		return wrong(fmt.Sprintf("the server was %v when the connection was made, and is %v now", then, now))
	case r == PreferStandby && !now.Standby && then.Standby:
		return wrong("the server was a standby when the connection was made, and is none now; target_session_attrs=prefer-standby")
	case r.Of(now) != Unfit:
		return nil
	}
	return r.Refuse(now)
}

// wrong is a dialects.ErrWrongRole with words of its own.
type wrong string

func (w wrong) Error() string        { return string(w) }
func (w wrong) Is(target error) bool { return target == dialects.ErrWrongRole }
