package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// People open the page in the middle of an incident. What it says then has to be right, as on a page
// that was open before.

// firstLook is when the page is opened, counted from the beginning of the incident.
const firstLook = 3 * time.Second

// TestTheFirstLookIsRightInEachIncident has each incident looked at by a page that was open before, by
// a page that is opened three seconds later, and by pooldriver top --once.
func TestTheFirstLookIsRightInEachIncident(t *testing.T) {
	t.Parallel()
	top := buildTop(t)
	for name, tr := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testbed.Each(t, func(t *testing.T, account testbed.Account) {
				for run := range randomtest.Rounds(1, 3) {
					if run > 0 {
						account = account.Server.NewAccount(t)
					}
					tr.look(t, account, top)
				}
			})
		})
	}
}

// buildTop is the command's program.
func buildTop(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "pooldriver")
	out, err := exec.Command("go", "build", "-C", "../cmd/pooldriver", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// look plays the incident.
func (tr trouble) look(t *testing.T, account testbed.Account, top string) {
	t.Helper()
	i := newTrouble(t, account, tr)
	say := regexp.MustCompile(tr.sentence(account.Server.Engine))
	right := func(v inspect.Verdict) bool { return v.Level == tr.level && say.MatchString(v.Sentence) }
	require.Equal(t, "calm", i.inspector.Snapshot().Pools[0].Verdict.Level, "before")
	tr.begin(i)
	began := time.Now()
	var seen []string
	pulse := feelPulse(t, account.Witness(t))
	// As a browser does; the last looks come after the others. A machine that stands still is looked at again.
	for look, again := 0, 0; look < 6; look++ {
		time.Sleep(time.Until(began.Add(time.Duration(look+again+1) * 750 * time.Millisecond)))
		onTime := pulse.onTime()
		v := i.inspector.Snapshot().Pools[0].Verdict
		seen = append(seen, time.Since(began).Round(100*time.Millisecond).String()+": "+v.Level+": "+v.Sentence)
		if time.Since(began) < firstLook {
			continue
		}
		if !right(v) && !onTime && time.Since(began) < slowMachine {
			look, again = look-1, again+1
			continue
		}
		require.True(t, right(v), "want %s: %s\ngot on an open page:\n%s", tr.level, say, strings.Join(seen, "\n"))
		if look == 3 {
			for said := i.firstLook(t, tr, right, top, say); said != ""; said = i.firstLook(t, tr, right, top, say) {
				require.True(t, !pulse.onTime() && time.Since(began) < slowMachine, "want %s: %s\ngot %s", tr.level, say, said)
				time.Sleep(750 * time.Millisecond)
			}
		}
	}
	t.Logf("right on an open page, at the first look and by top: %s", seen[len(seen)-1])
}

// firstLook opens a page that was not open before, and returns what is wrong there.
func (i *incident) firstLook(t *testing.T, tr trouble, right func(inspect.Verdict) bool, top string, say *regexp.Regexp) (wrong string) {
	t.Helper()
	page := inspect.Handler(i.connector)
	if tr.openConns > 0 {
		page.AddDB(i.connector, i.db)
	}
	server := httptest.NewServer(page)
	defer server.Close()
	answer, err := http.Get(server.URL + "?format=json")
	require.NoError(t, err)
	defer answer.Body.Close()
	var s inspect.Snapshot
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&s))
	if !right(s.Pools[0].Verdict) {
		return fmt.Sprintf("at the first look: %+v", s.Pools[0].Verdict)
	}

	other := inspect.Handler(i.connector)
	if tr.openConns > 0 {
		other.AddDB(i.connector, i.db)
	}
	again := httptest.NewServer(other)
	defer again.Close()
	out, err := exec.Command(top, "top", "--once", again.URL).CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.SplitN(string(out), "\n", 2)
	said := strings.Join(strings.Fields(lines[1]), " ")
	if !regexp.MustCompile(strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(say.String(), "^"), "$"), `\S*`, `.*`)).MatchString(said) {
		return "by top --once: " + said
	}
	return ""
}

func newTrouble(t *testing.T, account testbed.Account, tr trouble) *incident {
	t.Helper()
	var i *incident
	if tr.via != nil {
		account = tr.via(t, account)
	}
	i = newIncidentOf(t, account, tr.tasks, tr.parameters...)
	if tr.openConns > 0 {
		i.db.SetMaxOpenConns(tr.openConns)
		i.inspector.AddDB(i.connector, i.db)
	}
	i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	i.exec("INSERT INTO stock VALUES (1, 0)")
	return i
}

// each has n goroutines do work again and again, with a label.
func (i *incident) each(n int, label string, work func(context.Context)) {
	for range n {
		i.later(func(ctx context.Context) {
			ctx = pooldriver.Label(ctx, label)
			for ctx.Err() == nil {
				work(ctx)
			}
		})
	}
}

// run is a statement.
func (i *incident) run(query string) func(context.Context) {
	return func(ctx context.Context) { _, _ = i.db.ExecContext(ctx, query) }
}

// waits is a statement of a program that waits a little between two.
func (i *incident) waits(query string) func(context.Context) {
	return func(ctx context.Context) {
		_, _ = i.db.ExecContext(ctx, query)
		time.Sleep(20 * time.Millisecond)
	}
}

// together waits until n goroutines have come.
func together(n int) func() {
	var all sync.WaitGroup
	all.Add(n)
	return func() { all.Done(); all.Wait() }
}
