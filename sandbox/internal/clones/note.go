package clones

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// next is the name of a clone that is about to be made.
func (s *sqlServer) next() string { return s.template + "_" + unique() }

// A template that is being made may have a name of its own.
const unfinishedSuffix = "_new"

// ours are the names of templates and clones behind the realm. What else begins so is not ours.
var ours = regexp.MustCompile("^[0-9a-f]{10}(" + unfinishedSuffix + "|_[0-9a-f]{12})?$")

// isClone is asked of names of ours.
func (s *sqlServer) isClone(name string) bool { return len(name) > len(s.template+unfinishedSuffix) }

// A note says what a database is for. Without a note it is in use or half made.
const (
	usedNote  = "sandbox used "  // the name of the test follows
	keptNote  = "sandbox kept "  // the name of the test follows
	untilNote = "sandbox until " // of a template: the Unix time from which it may be removed follows
)

// isOver reports whether a database with this note may be removed if nobody has its lock.
func isOver(note string) bool {
	if text, found := strings.CutPrefix(note, untilNote); found {
		until, err := strconv.ParseInt(text, 10, 64)
		return err != nil || time.Now().Unix() >= until
	}
	return !strings.HasPrefix(note, keptNote)
}

func (s *sqlServer) untilNote() string {
	return untilNote + strconv.FormatInt(time.Now().Add(s.plan.Keep).Unix(), 10)
}

// over lists what begins with prefix and may be removed if nobody has its lock.
func (s *sqlServer) over(ctx context.Context, prefix string) (names []string, err error) {
	all, err := s.list(ctx, s.dialect.notes, prefix)
	for _, entry := range all {
		name, note, _ := strings.Cut(entry, " ")
		if ours.MatchString(strings.TrimPrefix(name, s.realm)) && isOver(note) {
			names = append(names, name)
		}
	}
	return names, err
}

// quoteText is a literal, also where a backslash escapes.
func quoteText(text string) string {
	return "'" + strings.NewReplacer("'", "''", "\\", "/").Replace(text) + "'"
}
