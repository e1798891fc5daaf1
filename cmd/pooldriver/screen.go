package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/internal/observe/metrics"
	"github.com/pooldriver/pooldriver/pool"
)

// endLine clears the rest of a line of the screen.
const endLine = "\x1b[K\r\n"

// render draws the pools for a terminal of this width and height, from a line on, which it returns: there may be fewer. height 0: an
// endless page, which leaves nothing out and clears nothing.
func render(s inspect.Snapshot, width, height, from int) (text string, first int) {
	var lines []string
	for _, p := range s.Pools {
		lines = append(lines, poolLines(p, s.At, width)...)
		if height == 0 {
			lines = append(lines, figureLines(p)...)
		}
	}
	if len(s.Pools) == 0 {
		lines = []string{"The program shows no pool: inspect.Handler was given no Connector."}
	}
	for i, line := range lines {
		lines[i] = printable(line)
	}
	if height == 0 {
		return strings.Join(lines, "\n") + "\n", 0
	}
	if all := len(lines); all > height {
		first = min(from, all-height+1)
		last := first + height - 1
		lines = append(slices.Clone(lines[first:last]), fmt.Sprintf("lines %d to %d of %d: the arrow keys, PgUp, PgDn, j and k move, q ends", first+1, last, all))
	}
	for i, line := range lines {
		lines[i] = clip(line, width)
	}
	return strings.Join(lines, endLine) + "\x1b[K", first // no newline: it would scroll the screen
}

// figureLines are the figures that are not 0.
func figureLines(p inspect.Pool) (lines []string) {
	for _, f := range metrics.Print(&metrics.Snapshot{Stats: p.Stats, Holders: p.Holders, At: p.At}) {
		lines = append(lines, fmt.Sprintf("%-50s %12s", f.Name, f.Value))
	}
	return append([]string{"", "FIGURES"}, lines...)
}

// events is the line of what has happened, beside waits.
func events(p inspect.Pool) string {
	line := fmt.Sprintf("failed dials %d   no connection in 1m: %s", p.Stats.DialErrors, cmp.Or(inspect.Failures(p.Recent.Failed), "0"))
	if p.Stats.Pipelined > 0 {
		line += fmt.Sprintf("   pipelined %d of %d", p.Recent.Pipelined, p.Recent.Acquired)
	}
	if s := p.Stats.Pool; s.State != pool.Active {
		line += "   breaker " + s.State.String()
	}
	if d := p.Stats.DialsFailing; d.Failed > 0 {
		line += fmt.Sprintf("   the last %d for %s", d.Failed, inspect.Brief(d.For))
	}
	return line
}

// poolLines returns the lines of a page about one pool, the most important line first.
func poolLines(p inspect.Pool, now time.Time, width int) []string {
	s := p.Stats.Pool
	figures := fmt.Sprintf("in use %d of %d   in the pool %d   waiting %d   wait p99 %s   most in use in 1h %d", s.Lent, s.Max, s.Idle, s.Waiting, wait(p.Recent), p.Stats.Peak)
	lines := append([]string{p.Name}, wrap(printable(p.Verdict.String()), width)...)
	for _, v := range p.Besides {
		lines = append(lines, wrap(printable(v.String()), width)...)
	}
	if p.Earlier != nil {
		lines = append(lines, wrap(printable("("+inspect.Brief(p.Earlier.Ago)+" ago: "+p.Earlier.Sentence+")"), width)...)
	}
	lines = append(lines, figures, events(p), bar(p))
	lines = append(lines, minute(p.Lines)...)
	lines = append(lines, otherLines(p, now)...)
	lines = append(lines, "")
	lines = append(lines, labelLines(p)...)
	holders := slices.Clone(p.Holders)
	slices.SortStableFunc(holders, func(a, b pooldriver.Holder) int { return cmp.Compare(b.Idle, a.Idle) })
	if len(holders) > 0 {
		lines = append(lines, fmt.Sprintf("%-16s %9s %9s %-12s %-8s %s", "HOLDS: LABEL", "IDLE", "HELD", "PIN", "PROCESS", "TAKEN AT, STATEMENT"))
	}
	for _, h := range holders {
		idle := inspect.Brief(h.Idle)
		if h.Running {
			idle = "run " + inspect.Brief(h.RunningFor)
		}
		process := ""
		if h.ProcessID != 0 {
			process = fmt.Sprint(h.ProcessID)
		}
		lines = append(lines, fmt.Sprintf("%-16s %9s %9s %-12s %-8s %s", clip(cmp.Or(h.Label, h.Task, "-"), 16), idle,
			inspect.Brief(now.Sub(h.Since)), clip(string(h.Pin), 12), process, strings.TrimSpace(place(h.TakenAt)+follow(h.Following)+" "+h.Statement)))
	}
	if len(p.BufferedRows) > 0 {
		lines = append(lines, "", fmt.Sprintf("%-16s %9s %s", "ROWS IN MEMORY", "OPEN FOR", "TAKEN AT, QUERY"))
	}
	for _, r := range p.BufferedRows {
		lines = append(lines, fmt.Sprintf("%-16s %9s %s", clip(cmp.Or(r.Label, r.Task, "-"), 16), inspect.Brief(now.Sub(r.Since)), strings.TrimSpace(place(r.TakenAt)+" "+r.Statement)))
	}
	if len(p.Waiters) > 0 {
		lines = append(lines, "", fmt.Sprintf("%-16s %9s %9s %s", "WAITS: LABEL", "FOR", "GIVES UP", "TASK"))
	}
	for _, w := range p.Waiters {
		left := "never"
		if w.Follows {
			left = "follows"
		} else if !w.Deadline.IsZero() {
			left = inspect.Brief(w.Deadline.Sub(now))
		}
		lines = append(lines, fmt.Sprintf("%-16s %9s %9s %s", clip(cmp.Or(w.Label, "-"), 16), inspect.Brief(now.Sub(w.Since)), left, w.Task))
	}
	return append(lines, "")
}

// otherLines are the replicas and the listener.
func otherLines(p inspect.Pool, now time.Time) (lines []string) {
	for _, o := range inspect.OthersOf(p) {
		state := o.State
		if o.Ill {
			state = "! " + state
		}
		since := ""
		if !o.Since.IsZero() {
			since = inspect.Brief(now.Sub(o.Since))
		}
		lines = append(lines, fmt.Sprintf("%-24s %-14s %9s %-12s %5d %9s %s", clip(o.Name, 24), clip(state, 14), since, clip(o.InUse, 12), o.Waiting, o.Lag, cmp.Or(o.Why, o.Done)))
	}
	if len(lines) == 0 {
		return nil
	}
	lines = append([]string{"", fmt.Sprintf("%-24s %-14s %9s %-12s %5s %9s %s", "BESIDE THE POOL", "STATE", "FOR", "IN USE", "WAIT", "BEHIND", "LAST ERROR, OR WHAT IT HAS DONE")}, lines...)
	if reads := inspect.ReadsOf(p); reads != "" {
		lines = append(lines, "reads for replicas: "+reads)
	}
	return lines
}

// follow says how many queries come behind the statement of a holder.
func follow(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" [%d follow]", n)
}

// sparkWidth is the width of a drawing of the last minute.
const sparkWidth = 30

// minute draws the last minute.
func minute(points []inspect.Point) []string {
	inUse := inspect.Spark(points, sparkWidth, func(p inspect.Point) float64 { return float64(p.InUse) })
	if inUse == "" {
		return nil
	}
	waiting := inspect.Spark(points, sparkWidth, func(p inspect.Point) float64 { return float64(p.Waiting) })
	p99 := inspect.Spark(points, sparkWidth, func(p inspect.Point) float64 { return float64(p.WaitP99) })
	return []string{"last minute: in use " + inUse + "  waiting " + waiting, "             wait p99 " + p99}
}

// labelLines are the sums by label.
func labelLines(p inspect.Pool) []string {
	if len(p.Labels) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("%-16s %9s %9s %6s %9s %s", "BY LABEL", "HAS", "FOR", "WAIT", "LONGEST", "STATEMENT WITH MOST OF THE TIME")}
	for _, l := range p.Labels {
		lines = append(lines, fmt.Sprintf("%-16s %9s %9s %6d %9s %s", clip(cmp.Or(l.Label, "-"), 16), fmt.Sprintf("%d of %d", l.Holds, p.Stats.Pool.Lent),
			inspect.Brief(l.LongestHold), l.Waiting, inspect.Brief(l.LongestWait), l.Statement))
	}
	return append(lines, "")
}

func wait(r inspect.Recent) string {
	if r.Over {
		return "> " + inspect.Brief(r.WaitP99)
	}
	return inspect.Brief(r.WaitP99)
}

// barWidth bounds how many connections are drawn one by one.
const barWidth = 76

// bar draws each connection: # runs a statement, ! is held and runs none, ~ is being opened,
// checked, cleaned or closed, - is idle, . is not open.
func bar(p inspect.Pool) string {
	s := p.Stats.Pool
	if s.Max > barWidth {
		return ""
	}
	running := 0
	for _, h := range p.Holders {
		if h.Running {
			running++
		}
	}
	b := strings.Repeat("#", running) + strings.Repeat("!", len(p.Holders)-running) +
		strings.Repeat("~", max(0, s.Active-len(p.Holders))) + strings.Repeat("-", s.Idle)
	return "[" + b + strings.Repeat(".", max(0, s.Max-len(b))) + "]  # runs  ! held, idle  ~ opening, cleaning  - in the pool"
}

func place(stack []pooldriver.Frame) string {
	if len(stack) == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", path.Base(stack[0].File), stack[0].Line)
}

// printable replaces characters that control the terminal: a label may contain any character.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '·'
		}
		return r
	}, line)
}

// wrap breaks a text into lines between words.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = word
			continue
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// clip cuts a text to a number of letters.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}
