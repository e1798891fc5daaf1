package sizing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

func TestAFileOfSQLIsAMix(t *testing.T) {
	all, err := Read(strings.NewReader("-- orders\nSELECT ';'\n  FROM a;\n\nSELECT 2;\r\nSELECT 2;\n-- the end\nSELECT 3"))
	require.NoError(t, err)
	require.Equal(t, []Statement{{Text: "SELECT ';'\n  FROM a"}, {Text: "SELECT 2"}, {Text: "SELECT 2"}, {Text: "SELECT 3"}}, all)
	_, err = Read(strings.NewReader("-- nothing\n;\n"))
	require.ErrorIs(t, err, ErrNothing)
}

func TestALogOfPostgreSQLIsAMixWithItsParameters(t *testing.T) {
	all, err := Read(strings.NewReader(`2026-11-28 14:00:00.000 UTC [70] LOG:  database system is ready to accept connections
2026-11-28 14:00:01.000 UTC [71] LOG:  statement: SELECT 1
2026-11-28 14:00:01.000 UTC [71] LOG:  execute stmtcache_1: SELECT a
	FROM b WHERE c = $1 AND d = $2 AND e = $3
2026-11-28 14:00:01.000 UTC [71] DETAIL:  Parameters: $1 = '4''2', $2 = NULL, $3 = 'x, $1 = ''y'''
2026-11-28 14:00:01.000 UTC [71] ERROR:  relation "b" does not exist
	and more of it
2026-11-28 14:00:01.000 UTC [71] LOG:  duration: 0.100 ms  parse <unnamed>: SELECT 3
2026-11-28 14:00:01.000 UTC [71] LOG:  duration: 0.100 ms  execute <unnamed>: SELECT 3
2026-11-28 14:00:01.000 UTC [71] LOG:  duration: 0.100 ms
`))
	require.NoError(t, err)
	require.Equal(t, []Statement{
		{Text: "SELECT 1"},
		{Text: "SELECT a\nFROM b WHERE c = $1 AND d = $2 AND e = $3", Args: []any{"4'2", nil, "x, $1 = 'y'"}},
		{Text: "SELECT 3"},
	}, all)
}

func TestAGeneralLogIsAMix(t *testing.T) {
	for name, log := range map[string]string{
		"MySQL": "/usr/sbin/mysqld, Version: 9.7.4. started with:\nTime                 Id Command    Argument\n" +
			"2026-11-28T14:00:00.000000Z\t    8 Connect\tapp@localhost on shop using TCP/IP\n" +
			"2026-11-28T14:00:00.000000Z\t    8 Query\tSELECT a\nFROM b\n" +
			"2026-11-28T14:00:00.000000Z\t    8 Prepare\tSELECT ?\n" +
			"2026-11-28T14:00:00.000000Z\t    8 Execute\tSELECT 7\n" +
			"2026-11-28T14:00:00.000000Z\t    8 Quit\t\n",
		"MariaDB": "/usr/sbin/mariadbd, Version: 11.8.9\nTime\t\t    Id Command\tArgument\n" +
			"261128 14:00:00\t     8 Connect\tapp@localhost on shop using TCP/IP\n" +
			"\t\t     8 Query\tSELECT a\nFROM b\n\t\t     8 Prepare\tSELECT ?\n\t\t     8 Execute\tSELECT 7\n\t\t     8 Quit\t\n",
	} {
		all, err := Read(strings.NewReader(log))
		require.NoError(t, err)
		require.Equal(t, []Statement{{Text: "SELECT a\nFROM b"}, {Text: "SELECT 7"}}, all, name)
	}
}

func slicesOf(rates ...float64) (round []Slice) {
	for _, r := range rates {
		round = append(round, Slice{Rate: r, P99: time.Duration(r)})
	}
	return round
}

func TestTheAdviceIsTheSmallestSizeWithinFivePercentOfTheBest(t *testing.T) {
	failing := slicesOf(100, 200, 100, 100)
	failing[1].Errors, failing[1].Error = 1, "full"
	for _, c := range []struct {
		rounds       [][]Slice
		best, advice int
		rises        bool
	}{
		{[][]Slice{slicesOf(100, 190, 300, 310)}, 4, 3, false},
		{[][]Slice{slicesOf(100, 200, 300, 400)}, 4, 4, true},
		{[][]Slice{slicesOf(100, 96, 90, 80)}, 1, 1, false},
		{[][]Slice{slicesOf(94, 95, 100, 99)}, 3, 2, false},
		{[][]Slice{slicesOf(50, 100, 104, 99), slicesOf(9000, 100, 104, 99), slicesOf(50, 100, 104, 99)}, 3, 2, false}, // medians
		{[][]Slice{failing}, 1, 1, false},
		{[][]Slice{slicesOf(0, 0, 0, 0)}, 0, 0, false},
		{nil, 0, 0, false},
	} {
		curve := curveOf([]int{1, 2, 3, 4}, c.rounds)
		require.Equal(t, c.best, curve.Best, c)
		require.Equal(t, c.advice, curve.Advice, c)
		require.Equal(t, c.rises, curve.Rises(), c)
		require.NoError(t, wellFormed(curve.SVG("a < b")))
		require.Equal(t, len(curve.Points)+1, strings.Count(curve.Text(), "\n"))
	}
	curve := curveOf([]int{1, 2}, [][]Slice{slicesOf(9000, 9100), slicesOf(8900, 9200), slicesOf(9100, 9000)})
	require.Equal(t, "the most was 9,100 statements per second (±1 %) with 2 connections; 1 give 99 % of it: 9,000 (±1 %)", curve.String())
	require.False(t, curve.Noisy())
	noisy := curveOf([]int{1, 2}, [][]Slice{slicesOf(9000, 6000), slicesOf(6000, 9000), slicesOf(7000, 8000)})
	require.True(t, noisy.Noisy())
	require.Regexp(t, `(?m)^→      1          9,000    ±1 %`, curve.Text())
}

// TestWhatSlowsAWholeRoundChangesNoAdvice: another program on the machine, for most of the rounds.
func TestWhatSlowsAWholeRoundChangesNoAdvice(t *testing.T) {
	var rounds [][]Slice
	for i := range 30 {
		slow := 1 / float64(1+i%3) // one third of the time nothing, else half or a third of the speed
		rounds = append(rounds, slicesOf(500*slow, 940*slow, 1000*slow, 990*slow))
	}
	curve := curveOf([]int{1, 2, 3, 4}, rounds)
	require.Equal(t, 3, curve.Advice)
	for _, p := range curve.Points {
		require.Less(t, p.Noise(), 0.001)
	}
}

func wellFormed(text string) error {
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestSizesGrowByHalves(t *testing.T) {
	require.Equal(t, []int{1, 2, 3, 4, 6, 8, 10, 12, 16, 20}, Sizes(20, 10, 40))
	require.Equal(t, []int{1}, Sizes(1))
	require.Equal(t, []int{1, 2, 3, 4, 6, 7}, Sizes(7, 0))
}

func openMemory(t *testing.T, parameters string) *sql.DB {
	t.Helper()
	db := sql.OpenDB(pooldriver.New("sqlite:file:" + t.Name() + "?mode=memory&cache=shared&pool_max_conns=4" + parameters))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestWhatWritesIsLeftOut(t *testing.T) {
	db := openMemory(t, "")
	_, err := db.ExecContext(t.Context(), "CREATE TABLE a (b)")
	require.NoError(t, err)
	read, write := Statement{Text: "SELECT * FROM a"}, Statement{Text: "INSERT INTO a VALUES (1)"}
	reader := openMemory(t, "&_pragma=query_only(1)")
	readers, refused, err := Readers(t.Context(), reader, []Statement{
		read, write, read, {Text: "PRAGMA query_only=0"}, {Text: " commit"}, {Text: "SELECT * FROM missing"}, {Text: "SELECT 1 INTO OUTFILE 'x'"}, write,
	})
	require.NoError(t, err)
	require.Equal(t, []Statement{read, read}, readers)
	require.Len(t, refused, 5)
	require.Contains(t, refused[write.Text].Error(), "readonly")
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM a").Scan(&n))
	require.Zero(t, n)
}

// sleeper is a driver whose queries take a time and return nothing; "nonsense" is an error. In a bubble the time is virtual.
type sleeper struct {
	driver.Conn
	takes time.Duration
}

func (s sleeper) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s sleeper) Driver() driver.Driver                        { return nil }
func (s sleeper) Close() error                                 { return nil }

func (s sleeper) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	time.Sleep(s.takes)
	if query == "nonsense" {
		return nil, errors.New("nonsense")
	}
	return none{}, nil
}

type none struct{}

func (none) Columns() []string         { return []string{"n"} }
func (none) Next([]driver.Value) error { return io.EOF }
func (none) Close() error              { return nil }

// openSleeper opens a database whose statements take a time. It is closed at the end of the bubble.
func openSleeper(t *testing.T, takes time.Duration) *sql.DB {
	db := sql.OpenDB(sleeper{takes: takes})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestEachSizeIsMeasuredAndErrorsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openSleeper(t, time.Millisecond)
		begun := time.Now()
		curve := Load(t.Context(), db, []Statement{{Text: "SELECT 1"}, {Text: "SELECT 2"}}, []int{1, 2, 4}, 300*time.Millisecond)
		require.GreaterOrEqual(t, time.Since(begun), 300*time.Millisecond)
		require.Len(t, curve.Points, 3)
		require.GreaterOrEqual(t, curve.Rounds, 1)
		for i, p := range curve.Points {
			require.Zero(t, p.Errors, p.Error)
			require.InDelta(t, []float64{1000, 2000, 4000}[i], p.Rate, 1)
			require.Equal(t, time.Millisecond, p.P99)
		}
		require.NotZero(t, curve.Advice)

		curve = Load(t.Context(), db, []Statement{{Text: "nonsense"}}, []int{1}, 100*time.Millisecond)
		require.Zero(t, curve.Advice)
		require.Equal(t, curve.Rounds*mostErrors, curve.Points[0].Errors)
		require.Contains(t, curve.Points[0].Error, "nonsense")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Empty(t, Load(ended, db, []Statement{{Text: "SELECT 1"}}, []int{1}, time.Minute).Points)
	})
}

// TestAStatementThatIsLongerThanItsSliceIsMeasured: by the time that it takes.
func TestAStatementThatIsLongerThanItsSliceIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 100 * time.Millisecond
		s := measure(t.Context(), openSleeper(t, took), []Statement{{Text: "SELECT 1"}}, 1, pace{window: took / 10})
		require.Zero(t, s.Errors)
		require.InDelta(t, 1/took.Seconds(), s.Rate, 0.01)
	})
}

func TestASliceIsLongEnoughForItsStatements(t *testing.T) {
	const ms = time.Millisecond
	require.Equal(t, pace{20 * ms, 100 * ms}, paceOf(100*ms, 10*ms, time.Second))
	require.Equal(t, pace{150 * ms, 300 * ms}, paceOf(100*ms, 100*ms, time.Second))
	require.Equal(t, pace{300 * ms, 600 * ms}, paceOf(100*ms, time.Second, 900*ms))
}
