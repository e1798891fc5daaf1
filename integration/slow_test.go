package integration

import (
	"database/sql"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// slowLog has the lines of slow statements.
type slowLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *slowLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// slowLine is one line.
type slowLine struct {
	Msg, Target, Statement, Label string
	Wait, Took                    time.Duration
	NotReadFor                    time.Duration `json:"not_read_for"`
	Rows                          *int64
	Others                        int
}

func (l *slowLog) lines(t *testing.T) (all []slowLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range strings.Lines(l.text.String()) {
		var line slowLine
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		all = append(all, line)
	}
	return all
}

// TestSlowStatementsAreLogged: with what is known of them, without literals and arguments, and not
// each time.
func TestSlowStatementsAreLogged(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		log := &slowLog{}
		c := pooldriver.New(account.URL("pool_slow_query=150ms", "pool_max_conns=1"), func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
		db := sql.OpenDB(c)
		t.Cleanup(func() { _ = db.Close() })
		ctx := pooldriver.Label(t.Context(), "GET /report")
		_, err := db.ExecContext(ctx, "CREATE TABLE stock (id INT PRIMARY KEY, n VARCHAR(40))")
		require.NoError(t, err)
		for range 20 {
			_, err = db.ExecContext(ctx, "INSERT INTO stock SELECT COUNT(*), 'secret' FROM stock")
			require.NoError(t, err)
		}
		const patience = 150 * time.Millisecond
		of := func(text string) []slowLine {
			return slices.DeleteFunc(log.lines(t), func(l slowLine) bool { return !strings.Contains(l.Statement, text) })
		}
		for _, line := range log.lines(t) { // these are quick, unless the machine stands still
			require.Greater(t, line.Took+line.NotReadFor, patience, line.Statement)
		}

		waits := map[testbed.Engine]string{
			testbed.Postgres: "UPDATE stock SET n = 'secret' FROM pg_sleep(0.3) WHERE id < 3",
			testbed.MySQL:    "UPDATE stock JOIN (SELECT SLEEP(0.3) AS s) AS w SET n = 'secrets' WHERE id < 3 AND s = 0",
		}[account.Server.Engine]
		begun := time.Now()
		var both sync.WaitGroup
		for range 2 { // the second one waits for the connection of the first
			both.Go(func() { _, err := db.ExecContext(ctx, waits); require.NoError(t, err) })
		}
		both.Wait()
		require.Eventually(t, func() bool { return len(of("UPDATE stock")) > 0 }, slowMachine, time.Millisecond)
		took := time.Since(begun)
		time.Sleep(50 * time.Millisecond)
		lines := of("UPDATE stock")
		require.Len(t, lines, 1, "a text is logged once in 10 s")
		line := lines[0]
		require.Equal(t, "pooldriver: a statement took longer than pool_slow_query", line.Msg)
		require.Equal(t, "GET /report", line.Label)
		require.Greater(t, line.Took, 280*time.Millisecond)
		require.Less(t, line.Took, took)
		require.NotNil(t, line.Rows)
		require.EqualValues(t, 3, *line.Rows)
		require.Zero(t, line.NotReadFor)

		rows, err := db.QueryContext(ctx, "SELECT id FROM stock WHERE n <> 'none'")
		require.NoError(t, err)
		read := 0
		for rows.Next() {
			if read++; read > 4 { // a slow reader
				time.Sleep(15 * time.Millisecond)
			}
		}
		require.NoError(t, rows.Close())
		require.Eventually(t, func() bool { return len(of("SELECT id")) == 1 }, slowMachine, time.Millisecond)
		line = of("SELECT id")[0]
		require.EqualValues(t, read, *line.Rows)
		require.Greater(t, line.NotReadFor, 100*time.Millisecond)
		require.NotContains(t, log.text.String(), "secret")
		require.NotContains(t, log.text.String(), "none")
	})
}
