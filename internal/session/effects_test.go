package session_test

import (
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

func TestWhatAnEffectAsksOfItsSession(t *testing.T) {
	for effect, want := range map[dialects.Effect]struct{ needs, leavesNothing bool }{
		dialects.Clean:                        {false, true},
		dialects.Writes:                       {false, true},
		dialects.Suspect:                      {false, false},
		dialects.Stateful:                     {true, false},
		dialects.TxControl:                    {true, false},
		dialects.ForgetPrepared:               {true, false},
		dialects.NamedPrepared:                {true, false},
		dialects.Rereads:                      {false, false},
		dialects.Unresettable:                 {true, false},
		dialects.Writes | dialects.TxControl:  {true, false},
		dialects.Suspect | dialects.Writes:    {false, false},
		dialects.Stateful | dialects.Writes:   {true, false},
		dialects.Suspect | dialects.TxControl: {true, false},
	} {
		t.Run(effect.String(), func(t *testing.T) {
			require.Equal(t, want.needs, session.NeedsSession(effect))
			require.Equal(t, want.leavesNothing, session.LeavesNothing(effect))
		})
	}
}

// TestAnEffectCountsFromBeforeItsStatement: what it began counts if it fails half way.
func TestAnEffectCountsFromBeforeItsStatement(t *testing.T) {
	f := open(t, setup{blind: true})
	require.Error(t, f.exec("SET /*+ error 'no' */ a = 1"))
	require.Equal(t, dialects.Stateful, f.Effect())
	require.False(t, f.Stateful(), "the program does not count on what has failed")
	require.NoError(t, f.exec("SET a = 1"))
	require.True(t, f.Stateful())
	f.KeepsForAll()
	require.Equal(t, dialects.Clean, f.Effect(), "it is not to be cleaned away")
	f.RecordEffect(dialects.TxControl)
	require.True(t, f.HiddenTx())
}

func TestAHiddenTransactionNeedsATextThatIsSureOfIt(t *testing.T) {
	for effect, hidden := range map[dialects.Effect]bool{
		dialects.Clean:                        false,
		dialects.TxControl:                    true,
		dialects.TxControl | dialects.Suspect: false,
	} {
		f := open(t, setup{blind: true})
		f.RecordEffect(effect)
		require.Equal(t, hidden, f.HiddenTx(), effect.String())
	}
}

// TestAFailedStatementThatMayHaveBegunATransactionLeavesADoubt: not every protocol tells the
// transaction's state with an error.
func TestAFailedStatementThatMayHaveBegunATransactionLeavesADoubt(t *testing.T) {
	for name, tc := range map[string]struct {
		effect dialects.Effect
		err    error
		doubt  bool
	}{
		"it worked":            {dialects.TxControl, nil, false},
		"it failed":            {dialects.TxControl, errNo, true},
		"it was not executed":  {dialects.TxControl, driver.ErrSkip, false},
		"a query that failed":  {dialects.Clean, errNo, false},
		"a setting that fails": {dialects.Stateful, errNo, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{})
			f.RecordResult(tc.effect, tc.err)
			require.Equal(t, tc.doubt, !f.Healthy())
			require.Equal(t, tc.doubt, f.Inspect().Doubt)
		})
	}
}

func TestATransactionBegunByHandIsKnownByTheServersWord(t *testing.T) {
	for name, tc := range map[string]struct {
		setup
		texts  []string
		last   dialects.TxStatus // of a connection that is closed
		byHand bool
	}{
		"begun":                                  {texts: []string{"BEGIN"}, byHand: true},
		"begun, and ended":                       {texts: []string{"BEGIN", "COMMIT"}},
		"begun, and a query since":               {texts: []string{"BEGIN", "SELECT 1"}, byHand: true},
		"nobody can say":                         {setup: setup{blind: true}, texts: []string{"BEGIN"}},
		"its connection is lost, and it was":     {texts: []string{"BEGIN"}, last: dialects.TxOpen, byHand: true},
		"its connection is lost, and it was not": {texts: []string{"BEGIN"}, last: dialects.TxNone},
	} {
		t.Run(name, func(t *testing.T) {
			with := tc.setup
			if tc.last != 0 {
				with = extendedBy(&knowing{last: tc.last, replaces: true})
			}
			f := open(t, with)
			for _, text := range tc.texts {
				st := f.statement(text)
				_, err := f.Exec(t.Context(), st)
				require.NoError(t, err)
				if tc.last != 0 {
					f.db.KillAll()
				}
				f.RecordResult(st.Effect, err)
			}
			require.Equal(t, tc.byHand, f.ByHand())
		})
	}
	f := open(t, setup{})
	f.begin(t.Context())
	f.RecordResult(dialects.TxControl, nil)
	require.False(t, f.ByHand(), "it is BeginTx's")
}

func TestObservingAnOperationUpdatesWhatWouldBeLost(t *testing.T) {
	f := open(t, setup{inTask: true})
	f.RecordEffect(dialects.Stateful)
	f.Observe(true)
	require.True(t, f.Stateful() && f.ByHand())
	f.KeepsForAll()
	f.Observe(false)
	require.False(t, f.Stateful() || f.ByHand())
	f.begin(t.Context())
	f.Observe(true)
	require.False(t, f.ByHand(), "it is BeginTx's")
	f.RecordEffect(dialects.Unresettable)
	f.Observe(true)
	f.MarkUnusable()
	f.KeepsForAll()
	f.Observe(false)
	require.True(t, f.Stateful(), "what a lost session had stays known")
}
