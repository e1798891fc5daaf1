package virtual

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJudgeRetriesOnlyWhatTheServerCannotHaveExecuted(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    outcome
		want verdict
	}{
		{"an ordinary error", outcome{executes: true, first: true}, verdict{}},
		{"ErrBadConn before anything was sent", outcome{badConn: true, executes: true, unsent: true, first: true}, verdict{retry: true}},
		{"ErrBadConn after the statement was sent", outcome{badConn: true, executes: true, first: true}, verdict{unclear: true}},
		{"ErrBadConn of a driver whose word is all there is", outcome{badConn: true, executes: true, trusted: true, first: true}, verdict{}},
		{"lost before anything was sent, another error", outcome{lost: true, executes: true, unsent: true, first: true}, verdict{retry: true}},
		{"lost after the statement was sent, another error", outcome{lost: true, executes: true, first: true}, verdict{}},
		{"the server had ended the idle connection before", outcome{lost: true, executes: true, wasIdle: true, first: true}, verdict{retry: true}},
		{"the same, in a session that has something to lose", outcome{lost: true, executes: true, wasIdle: true}, verdict{}},
		{"a prepare may be sent twice", outcome{badConn: true, first: true}, verdict{retry: true}},
		{"a begin on a lost connection may be sent twice", outcome{lost: true, first: true}, verdict{retry: true}},
		{"a begin in whose answer the server ends the session may be sent twice", outcome{ended: true, first: true}, verdict{retry: true}},
		{"the same for a prepare in a session that has something to lose", outcome{ended: true}, verdict{}},
		{"a statement in whose answer the server ends the session, and may have committed before", outcome{ended: true, executes: true, first: true}, verdict{}},
		{"the same from a procedure that raises the error of an idle session", outcome{ended: true, executes: true, wasIdle: true, first: true}, verdict{}},
		{"not the first of its checkout", outcome{badConn: true, executes: true, unsent: true}, verdict{}},
		{"not the first of its checkout and sent", outcome{badConn: true, executes: true}, verdict{unclear: true}},
		{"the second try", outcome{badConn: true, executes: true, unsent: true, first: true, retried: true}, verdict{}},
		{"the caller has gone", outcome{lost: true, executes: true, unsent: true, first: true, expired: true}, verdict{}},
	} {
		require.Equal(t, tc.want, judge(tc.o), tc.name)
	}
}
