package clones

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnlyNamesOfTheSandboxAreOurs(t *testing.T) {
	t.Parallel()
	s := &sqlServer{realm: "sandbox_3f2a11_", template: "sandbox_3f2a11_0123456789"}
	for name, want := range map[string]struct{ ours, clone bool }{
		s.template:                              {true, false},
		s.template + unfinishedSuffix:           {true, false},
		s.next():                                {true, true},
		"sandbox_3f2a11_abcdefabcd_" + unique(): {true, true},
		s.template + "_of_the_user":             {},
		s.next() + "_old":                       {},
		"sandbox_3f2a11_orders":                 {},
		"sandbox_3f2a11_":                       {},
	} {
		require.Equal(t, want.ours, ours.MatchString(strings.TrimPrefix(name, s.realm)), name)
		if want.ours {
			require.Equal(t, want.clone, s.isClone(name), name)
			require.LessOrEqual(t, len(name), 63, "PostgreSQL cuts longer names")
		}
	}
}

func TestANoteSaysWhenADatabaseMayBeRemoved(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) string { return untilNote + strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	for note, want := range map[string]bool{
		"":                     true, // half made
		usedNote + "TestOrder": true,
		keptNote + "TestOrder": false,
		at(time.Minute):        false,
		at(-time.Minute):       true,
		untilNote + "tomorrow": true,
	} {
		require.Equal(t, want, isOver(note), note)
	}
	require.Equal(t, `'Test/it''s'`, quoteText(`Test\it's`))
}
