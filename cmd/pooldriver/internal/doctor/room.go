package doctor

import "fmt"

// limit is a limit of connections that somebody sets.
type limit struct {
	check    string
	name     string // "max_connections of the server is"
	max      int
	reserved int    // not for this program
	others   int    // connections of other programs that count
	raise    string // what to type to raise it to a number
}

// free is how many connections all processes of the program together may have.
func (l *limit) free() int { return max(0, l.max-l.reserved-l.others) }

// judge compares the limit with what the program may open.
func (l *limit) judge(p *Plan) Finding {
	f := Finding{Check: l.check, Found: fmt.Sprintf("%s %d", l.name, l.max)}
	if l.reserved > 0 {
		f.Found += fmt.Sprintf(", %d are reserved", l.reserved)
	}
	if l.others > 0 {
		f.Found += fmt.Sprintf(", other programs have %d now", l.others)
	}
	f.Found += fmt.Sprintf(": %d for this program; %s", l.free(), p.Product())
	each, over := l.free()/p.processes(), counted(p.Need()-l.free(), "connection")
	switch {
	case p.Need() <= l.free():
		f.Level = OK
		f.Follows = fmt.Sprintf("it fits, and leaves %d", l.free()-p.Need())
		return f
	case each == 0:
		f.Follows = fmt.Sprintf("not every process gets even one connection, and its dials fail: raise the limit by %d, end other sessions, or put a pooler in front of the server", p.Need()-l.free())
		f.Type = fmt.Sprintf(l.raise, l.max+p.Need()-l.free())
	case p.MaxConns*p.Replicas <= l.free():
		f.Follows = fmt.Sprintf("it fits, except during a rollout: then the server refuses up to %s, and new processes may get none", over)
		f.Type = fmt.Sprintf("pool_max_conns=%d", each)
	default:
		f.Follows = fmt.Sprintf("under load the server refuses up to %s: statements wait for the open ones, and a process without any fails", over)
		f.Type = fmt.Sprintf("pool_max_conns=%d", each)
	}
	f.Level = Bad
	return f
}
