package optiontable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

type config struct {
	number   int
	flag     bool
	duration time.Duration
	word     uint8
	bytes    int64
	list     []string
}

var table = Table[config]{
	Number("number", "3", 1, "a number", func(c *config) *int { return &c.number }),
	Flag("flag", "true", "a flag", func(c *config) *bool { return &c.flag }),
	Duration("duration", "5s", time.Second, "a duration", func(c *config) *time.Duration { return &c.duration }),
	Word("word", "two", "a word", []string{"one", "two"}, func(c *config) *uint8 { return &c.word }),
	Bytes("bytes", "16MiB", "bytes", func(c *config) *int64 { return &c.bytes }),
	List("list", "", "a list", func(c *config) *[]string { return &c.list }),
}

func TestTheDefaultIsThatOfEveryRow(t *testing.T) {
	t.Parallel()
	c := table.Default("")
	require.Equal(t, config{3, true, 5 * time.Second, 1, 16 << 20, nil}, c)
	require.NoError(t, table.Check(&c))
	require.Equal(t, "number=3 flag=true duration=5s word=two bytes=16MiB list=", table.Text(&c))
	require.Equal(t, "a word: one, two", table[3].Doc)

	flag := table[1]
	flag.Of = map[string]string{"other": "false"}
	by := Table[config]{flag}
	require.Equal(t, []bool{true, true, false}, []bool{by.Default("").flag, by.Default("one").flag, by.Default("other").flag})
}

func TestADefaultThatIsNoValuePanics(t *testing.T) {
	t.Parallel()
	wrong := Table[config]{Flag("flag", "perhaps", "", func(c *config) *bool { return &c.flag })}
	require.PanicsWithValue(t, "pooldriver: default of flag: wants true or false", func() { wrong.Default("") })
}

func TestParametersSetTheirFields(t *testing.T) {
	t.Parallel()
	var c config
	require.NoError(t, table.Apply(&c, []dialects.Param{{Name: "number", Value: "7"}, {Name: "flag", Value: "false"},
		{Name: "duration", Value: "2m"}, {Name: "word", Value: "one"}, {Name: "bytes", Value: "64KiB"}, {Name: "list", Value: "a, b c,,"}}))
	require.Equal(t, config{7, false, 2 * time.Minute, 0, 64 << 10, []string{"a", "b c"}}, c)
	require.Equal(t, "a,b c", table[5].Get(&c))
}

func TestAnErrorOfAParameterDoesNotShowItsValue(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for name, want := range map[string]string{
		"number":    "the DSN's parameter number wants a whole number",
		"flag":      "the DSN's parameter flag wants true or false",
		"duration":  "the DSN's parameter duration wants a duration with its unit, such as 30s or 5m",
		"word":      "the DSN's parameter word wants one of one, two",
		"pool_size": "unknown parameter pool_size in the DSN; the known ones are number, flag, duration, word, bytes, list",
		"bytes":     "the DSN's parameter bytes wants a number of bytes, such as 65536, 64KiB or 16MiB",
		secret:      "unknown parameter pool_… in the DSN; the known ones are number, flag, duration, word, bytes, list",
	} {
		c := table.Default("")
		require.EqualError(t, table.Apply(&c, []dialects.Param{{Name: name, Value: secret}}), want)
		require.Equal(t, table.Default(""), c)
	}
	c := table.Default("")
	twice := []dialects.Param{{Name: "number", Value: "1"}, {Name: "number", Value: "1"}}
	require.EqualError(t, table.Apply(&c, twice), "the DSN has the parameter number twice; leave one of them out")
}

func TestASlipInANameIsNamed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"duratio": "duration", "durration": "duration", "duraiton": "duration", "nuber": "number",
		"wrod": "", "drtn": "", "number123": "", "s3cr3t": "",
	} {
		c := table.Default("")
		err := table.Apply(&c, []dialects.Param{{Name: name, Value: "1"}})
		if want == "" {
			require.ErrorContains(t, err, "unknown parameter pool_…", name)
			require.NotContains(t, err.Error(), name)
		} else {
			require.EqualError(t, err, "unknown parameter "+name+" in the DSN; did you mean "+want+"?")
		}
	}
}

func TestValuesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*config){
		"number: 0 is too small; the least is 1":      func(c *config) { c.number = 0 },
		"duration: 1ms is too short; the least is 1s": func(c *config) { c.duration = time.Millisecond },
		"word: wants one of one, two":                 func(c *config) { c.word = 2 },
		"bytes: -1 bytes are too few; the least is 0": func(c *config) { c.bytes = -1 },
	} {
		c := table.Default("")
		spoil(&c)
		require.EqualError(t, table.Check(&c), want)
	}
	c := config{word: 9}
	require.Contains(t, table.Text(&c), "word=9")
}
