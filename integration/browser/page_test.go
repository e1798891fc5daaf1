package browser

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

const firstRow = `(() => {
	const row = document.querySelector("table.holders tbody tr");
	return row ? row.innerText : "";
})()`

// TestAForgottenTransactionIsTheFirstRow: within a second of its statement, on a page that
// was open before, by the server's number, the label and the place in the program.
func TestAForgottenTransactionIsTheFirstRow(t *testing.T) {
	s := newStage(t, 4, patient)
	b := openBrowser(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s.crowd(t, ctx, 3, "GET /report", "SELECT pg_sleep(300)")
	b.do(t, chromedp.Navigate(s.url()), chromedp.WaitVisible(chromedp.CSS("table.holders")))
	require.Eventually(t, func() bool { // else the transaction may have the locks that they wait for
		reports := 0
		for _, h := range s.connector.Holders() {
			if h.RunningFor > time.Second {
				reports++
			}
		}
		return reports == 3
	}, 30*time.Second, 10*time.Millisecond)

	task, end := pooldriver.NewTask(pooldriver.Label(ctx, "POST /orders"))
	t.Cleanup(end)
	pid := forgetTransaction(t, task, s.db)
	planted := time.Now()
	s.crowd(t, ctx, 12, "GET /cart", "SELECT 1")
	require.Eventually(t, func() bool { return strings.Contains(ask[string](t, b, firstRow), "POST /orders") }, 30*time.Second, 50*time.Millisecond)
	t.Logf("the row was there %v after the statement", time.Since(planted).Round(time.Millisecond))
	row := ask[string](t, b, firstRow)
	require.Contains(t, row, "forgetTransaction (stage_test.go:")
	require.Contains(t, row, "transaction")

	var state string
	require.NoError(t, s.account.Witness(t).QueryRowContext(t.Context(), "SELECT state FROM pg_stat_activity WHERE pid = $1", pid).Scan(&state))
	require.Equal(t, "idle in transaction", state, "by the server")
	require.Contains(t, ask[string](t, b, `document.querySelector("table.holders tbody tr td[data-name=process]").innerText`), strconv.Itoa(pid))

	require.Eventually(t, func() bool {
		return strings.Contains(ask[string](t, b, shownRows("waiters")+".join()"), "GET /cart 12 1 ")
	}, 30*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		v := ask[string](t, b, `document.querySelector(".verdict").innerText`)
		return strings.HasPrefix(v, "12 statements wait.") && strings.Contains(v, "GET /report has 3 of 4 connections") && strings.Contains(v, "besides, a transaction by POST /orders at browser.forgetTransaction (stage_test.go:")
	}, 30*time.Second, 50*time.Millisecond, "who is to blame")
	require.Contains(t, ask[string](t, b, `document.querySelector("table.labels tbody tr").innerText`), "GET /report\t3 of 4\t", "sums by label")
	require.Equal(t, 4, ask[int](t, b, `document.querySelectorAll("ul.lines polyline").length`), "the last minute")
	b.picture(t, "inspector", 1280, 900, false)
	b.picture(t, "inspector-dark", 1280, 900, true)
	b.picture(t, "inspector-narrow", 390, 900, false)
	require.LessOrEqual(t, ask[int](t, b, `document.documentElement.scrollWidth`), 390, "a narrow page needs no scrolling sideways")
	b.do(t, chromedp.Click(chromedp.CSS("table.holders details summary")))
	time.Sleep(2500 * time.Millisecond) // two refreshes
	require.True(t, ask[bool](t, b, `document.querySelector("table.holders details").open`), "what was opened stays open")
	b.requireClean(t, s.page.URL)
}

// shownRows are the texts of a table's rows that can be seen.
func shownRows(table string) string {
	return `Array.from(document.querySelectorAll("table.` + table + ` tbody tr")).filter((r) => r.getBoundingClientRect().height > 0).map((r) => r.innerText.replaceAll(/\s+/g, " "))`
}

// TestACrowdIsARowThatOpensByKeyAndStaysOpen: its keyboard focus stays, too, while the page is refreshed. Replicas and the listener have rows.
func TestACrowdIsARowThatOpensByKeyAndStaysOpen(t *testing.T) {
	const many = 60
	s := newStage(t, many, "pool_replicas=127.0.0.1:1", patient)
	b := openBrowser(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var listens sync.WaitGroup
	t.Cleanup(func() { cancel(); listens.Wait() })
	listens.Go(func() { _ = s.connector.Listen(ctx, "orders", func(context.Context, pooldriver.Notification) {}) })
	_, err := s.db.ExecContext(pooldriver.Replica(ctx), "SELECT 1")
	require.NoError(t, err)
	s.crowd(t, ctx, many, "GET /report", "SELECT pg_sleep(300)")
	require.Eventually(t, func() bool { return s.connector.Stats().Pool.Lent == many }, 30*time.Second, 10*time.Millisecond)
	s.crowd(t, ctx, 200, "GET /cart", "SELECT 1")
	require.Eventually(t, func() bool { return s.connector.Stats().Pool.Waiting == 200 }, 30*time.Second, 10*time.Millisecond)
	b.do(t, chromedp.Navigate(s.url()), chromedp.WaitVisible(chromedp.CSS("table.holders")))
	require.Regexp(t, `^GET /report runs for \S+ at most \S+ at most 60 connections, 60 run a statement$`, ask[string](t, b, shownRows("holders")+".join()"))
	require.Regexp(t, `^GET /cart 200 1 `, ask[string](t, b, shownRows("waiters")+".join()"))
	others := ask[string](t, b, shownRows("others")+".join()")
	require.Regexp(t, `^replica 127\.0\.0\.1:1 dead \S+ connection refused 0 of \d+ `, others)
	require.Regexp(t, `listener listening.* process \d+ 1 channels, .* LISTEN`, others)

	for _, table := range []string{"holders", "waiters"} {
		b.do(t, chromedp.Focus(chromedp.CSS("table."+table+" .group summary")), chromedp.KeyEvent("\r"))
		time.Sleep(2500 * time.Millisecond) // two refreshes
		require.True(t, ask[bool](t, b, `document.activeElement.matches("table.`+table+` .group summary")`), "the focus stays")
		require.Greater(t, ask[int](t, b, shownRows(table)+".length"), many, "what was opened stays open")
	}
	b.do(t, chromedp.Focus(chromedp.CSS("form button")))
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, "flush", ask[string](t, b, `document.activeElement.name`))
	for _, width := range []int64{1280, 390} {
		b.picture(t, "crowd-"+strconv.FormatInt(width, 10), width, 900, false)
		require.LessOrEqual(t, ask[int](t, b, `document.documentElement.scrollWidth`), int(width), "long rows wrap")
	}
	b.requireClean(t, s.page.URL)
}

func TestThePageWorksWithoutScripts(t *testing.T) {
	s := newStage(t, 4)
	ctx, end := pooldriver.NewTask(pooldriver.Label(t.Context(), "nightly"))
	t.Cleanup(end)
	forgetTransaction(t, ctx, s.db)
	b := openBrowser(t)
	call(t, b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(t, chromedp.Navigate(s.url()))
	table, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("table.holders")))
	require.NoError(t, err)
	require.Contains(t, table, "nightly")
	b.requireClean(t, s.page.URL)
}

// pid is the server's number of the pool's connection.
func (s *stage) pid(t *testing.T) (pid int) {
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

func TestTheButtonReplacesConnectionsAndAnotherSitesPageCannot(t *testing.T) {
	s := newStage(t, 1)
	b := openBrowser(t)
	before := s.pid(t)

	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<!DOCTYPE html><form method="post" action="`+s.url()+`"><button name="flush" value="0">win</button></form>`)
	}))
	t.Cleanup(foreign.Close)
	b.do(t, chromedp.Navigate(foreign.URL))
	refused, err := chromedp.RunResponse(b.ctx, chromedp.Click(chromedp.CSS("button")))
	require.NoError(t, err)
	require.EqualValues(t, http.StatusForbidden, refused.Status)
	require.Equal(t, before, s.pid(t), "by the server: it is the same session")

	// By way of another page: to the address of a form it would mean sending the form again.
	b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(s.url()), chromedp.Click(chromedp.CSS("form button")))
	require.Eventually(t, func() bool { return s.pid(t) != before }, 30*time.Second, 50*time.Millisecond)
}

// TestTenThousandWaiters: the page is as quick as with one.
func TestTenThousandWaiters(t *testing.T) {
	s := newStage(t, 1, patient)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	task, end := pooldriver.NewTask(ctx)
	t.Cleanup(end)
	forgetTransaction(t, task, s.db)
	s.crowd(t, ctx, 10_000, "GET /", "SELECT 1")
	require.Eventually(t, func() bool { return s.connector.Stats().Pool.Waiting == 10_000 }, 30*time.Second, 10*time.Millisecond)
	b := openBrowser(t)
	b.do(t, chromedp.Navigate(s.url()))
	require.Equal(t, 1, ask[int](t, b, shownRows("waiters")+".length"), "they have one label")
	require.Contains(t, ask[string](t, b, `document.body.innerText`), "These are the first 1000 of 10000.")
}

func (s *stage) get(t *testing.T, path string) []byte {
	answer, err := http.Get(s.page.URL + path)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return body
}

// TestTheProfilesFirstLineIsTheForgottenTransaction reads it with pprof's own library.
func TestTheProfilesFirstLineIsTheForgottenTransaction(t *testing.T) {
	s := newStage(t, 4)
	for range 1000 {
		_, err := s.db.ExecContext(t.Context(), "SELECT 1")
		require.NoError(t, err)
	}
	ctx, end := pooldriver.NewTask(t.Context())
	t.Cleanup(end)
	forgetTransaction(t, ctx, s.db)
	time.Sleep(time.Second)
	p, err := profile.ParseData(s.get(t, "/debug/pprof/pooldriver"))
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	require.Equal(t, "idle_while_pinned", p.DefaultSampleType)
	require.Equal(t, "nanoseconds", p.SampleType[3].Unit)
	var top *profile.Sample
	for _, sample := range p.Sample {
		if top == nil || sample.Value[3] > top.Value[3] {
			top = sample
		}
	}
	require.Contains(t, top.Location[0].Line[0].Function.Name, "forgetTransaction")
	require.GreaterOrEqual(t, top.Value[3], int64(900*time.Millisecond))
	require.LessOrEqual(t, top.Value[3], int64(time.Minute))
}

// TestNoSecretIsShown: not the password, no literal, no argument, no setting.
func TestNoSecretIsShown(t *testing.T) {
	s := newStage(t, 4, "application_name=seeded%20setting")
	ctx, end := pooldriver.NewTask(t.Context())
	t.Cleanup(end)
	forgetTransaction(t, ctx, s.db)
	_, err := s.db.ExecContext(ctx, "SELECT set_config('app.tenant', 'seeded setting', false), $$seeded literal$$, E'seeded \\' literal'")
	require.NoError(t, err)
	for _, path := range []string{"/debug/pool", "/debug/pool?format=json", "/debug/pprof/pooldriver"} {
		body := s.get(t, path)
		require.NotEmpty(t, body)
		for _, secret := range []string{s.account.Password, "seeded"} {
			require.False(t, bytes.Contains(body, []byte(secret)), "%s shows %q: %s", path, secret, body)
		}
	}
}

// TestAnEarlierVerdictIsGreyAndBelow: the sentence that counts is the present one.
func TestAnEarlierVerdictIsGreyAndBelow(t *testing.T) {
	s := newStage(t, 4, patient)
	b := openBrowser(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	_, err := s.db.ExecContext(ctx, "CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	require.NoError(t, err)
	witness := s.account.Witness(t)
	_, err = witness.ExecContext(ctx, "GRANT pg_read_all_stats TO "+s.account.User) // what others do
	require.NoError(t, err)
	lock, err := witness.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(ctx, "LOCK TABLE stock IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	s.crowd(t, ctx, 3, "GET /stock", "SELECT n FROM stock")
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, witness.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'", s.account.User).Scan(&n))
		return n == 3
	}, time.Minute, 10*time.Millisecond)
	time.Sleep(3 * time.Second) // the page is opened in the middle of it
	b.do(t, chromedp.Navigate(s.url()))
	verdict := func() string { return ask[string](t, b, `document.querySelector(".verdict").innerText`) }
	require.Regexp(t, `^3 statements wait for a lock \(relation\), for \d\S*s: GET /stock: SELECT n FROM stock\. In the way is a session that is not of this pool: process \d+ of .*idle in transaction for .*, last: LOCK TABLE stock`, verdict(), "the first look")
	b.picture(t, "first-look", 1280, 900, false)
	require.NoError(t, lock.Rollback())
	require.Eventually(t, func() bool { return strings.HasPrefix(verdict(), "The pool is not the problem") }, 30*time.Second, 50*time.Millisecond)
	require.Regexp(t, `^\d.*s ago: 3 statements wait for a lock`, ask[string](t, b, `document.querySelector(".earlier").innerText`))
	require.True(t, ask[bool](t, b, `document.querySelector(".earlier").getBoundingClientRect().top >= document.querySelector(".verdict").getBoundingClientRect().bottom`))
	require.Equal(t, ask[string](t, b, `getComputedStyle(document.querySelector(".legend")).color`), ask[string](t, b, `getComputedStyle(document.querySelector(".earlier")).color`))
	b.picture(t, "earlier", 1280, 900, false)
	b.requireClean(t, s.page.URL)
}
