package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// clients are who has connections to a server, as one of them sees it.
type clients struct {
	user, database, program string // of the one that asks
	sessions                []sessions
	hidden                  int // sessions that the user may not see
}

// sessions are the open connections of one program.
type sessions struct {
	user, database, program string
	count, running, inTx    int
	ours                    bool
}

// list reads the sessions. query gives user, database, program, and how many there are, run a statement,
// and are idle in a transaction.
func (c *clients) list(ctx context.Context, conn *sql.Conn, query string) error {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s sessions
		if err := rows.Scan(&s.user, &s.database, &s.program, &s.count, &s.running, &s.inTx); err != nil {
			return err
		}
		s.ours = s.user == c.user && s.database == c.database && s.program == c.program
		c.sessions = append(c.sessions, s)
	}
	return rows.Err()
}

// count counts the sessions of others, which fit.
func (c *clients) count(fits func(sessions) bool) (n int) {
	for _, s := range c.sessions {
		if !s.ours && fits(s) {
			n += s.count
		}
	}
	return n
}

func anyone(sessions) bool { return true }

func (c *clients) ofUser(s sessions) bool { return s.user == c.user }

func (c *clients) ofDatabase(s sessions) bool { return s.database == c.database }

// tellSessions lists who has connections now.
func (r *Report) tellSessions(c *clients) {
	slices.SortStableFunc(c.sessions, func(a, b sessions) int { return b.count - a.count })
	const most = 8
	total := c.hidden
	var parts []string
	for i, s := range c.sessions {
		total += s.count
		if i >= most {
			continue
		}
		text := s.user + "@" + s.database
		if s.program != "" {
			text += " " + s.program
		}
		if s.ours {
			text += " (as this program)"
		}
		text += fmt.Sprintf(" %d", s.count)
		if s.running > 0 {
			text += fmt.Sprintf(", %d run a statement", s.running)
		}
		if s.inTx > 0 {
			text += fmt.Sprintf(", %d idle in a transaction", s.inTx)
		}
		parts = append(parts, text)
	}
	if len(c.sessions) > most {
		parts = append(parts, counted(len(c.sessions)-most, "more group"))
	}
	if c.hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d that this user may not see", c.hidden))
	}
	f := Finding{Level: Note, Check: "sessions", Found: counted(total, "session") + " beside doctor's own now"}
	if len(parts) > 0 {
		f.Found += ": " + strings.Join(parts, "; ")
	}
	r.Add(f)
}
