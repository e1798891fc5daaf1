package pooldriver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/bytesize"
)

// option is one row of the table of pool_ parameters.
type option struct {
	name  string // of the DSN parameter
	value string // the default, as a DSN would spell it
	doc   string // one sentence for docs/settings.md
	set   func(*Config, string) error
	get   func(*Config) string
	check func(*Config) error
}

// options drives parsing, defaults, checks and documentation. The names are
// pgxpool's where it has the thing.
var options = []option{
	number("pool_max_conns", "10", 1, "most real connections at a time, as the server counts them", func(c *Config) *int { return &c.MaxConns }),
	number("pool_min_conns", "0", 0, "real connections kept open from the first use on", func(c *Config) *int { return &c.MinConns }),
	number("pool_min_idle_conns", "0", 0, "idle real connections kept ready", func(c *Config) *int { return &c.MinIdleConns }),
	lifetime(),
	lifetimeJitter(),
	duration("pool_max_conn_idle_time", "30m0s", 0, "how long a connection may lie idle; 0 is for ever", func(c *Config) *time.Duration { return &c.MaxConnIdleTime }),
	duration("pool_health_check_period", "1m0s", 0, "pause between looks at the idle connections; 0 is never", func(c *Config) *time.Duration { return &c.HealthCheckPeriod }),
	duration("pool_ping_timeout", "5s", 1, "bound of one health check's ping", func(c *Config) *time.Duration { return &c.PingTimeout }),
	duration("pool_acquire_timeout", "30s", 0, "bound of the wait for a connection, next to the caller's context; 0 is none", func(c *Config) *time.Duration { return &c.AcquireTimeout }),
	duration("pool_connect_timeout", "10s", 1, "bound of one dial", func(c *Config) *time.Duration { return &c.ConnectTimeout }),
	duration("pool_clean_timeout", "5s", 1, "bound of rollback and cleaning; a connection that takes longer is closed", func(c *Config) *time.Duration { return &c.CleanTimeout }),
	number("pool_max_waiters", "0", 0, "how many callers may wait; one more gets an error at once; 0 is no bound", func(c *Config) *int { return &c.MaxWaiters }),
	word("pool_reset", "auto", "when a connection is cleaned before it is lent again", resetModes[:], func(c *Config) *uint8 { return (*uint8)(&c.Reset) }),
	number("pool_stmt_cache", "128", 0, "prepared statements kept on each real connection", func(c *Config) *int { return &c.StmtCache }),
	number("pool_stmt_budget", "4096", 0, "prepared statements kept on all connections together; 0 is no bound", func(c *Config) *int { return &c.StmtBudget }),
	flag("pool_lazy_begin", "false", "BeginTx sends nothing, the first statement begins the transaction", func(c *Config) *bool { return &c.LazyBegin }),
	word("pool_ambient", "auto", "what happens to a task's statements while it has a transaction open", ambientModes[:], func(c *Config) *uint8 { return (*uint8)(&c.Ambient) }),
	bytes("pool_nested_buffer", "16MiB", "most that is read into memory of rows whose connection another statement needs", func(c *Config) *int64 { return &c.NestedBuffer }),
	bytes("pool_nested_buffer_total", "64MiB", "most of that for all statements together; at least pool_nested_buffer", func(c *Config) *int64 { return &c.NestedBufferTotal }),
	duration("pool_deadlock_after", "5s", 0, "how long nothing may have moved, while every connection is held by a task that waits for one more, before ErrDeadlock; 0 is never", func(c *Config) *time.Duration { return &c.DeadlockAfter }),
	duration("pool_task_timeout", "0s", 0, "how long after its first statement a task is ended; 0 is never", func(c *Config) *time.Duration { return &c.TaskTimeout }),
	number("pool_breaker_failures", "0", 0, "failed dials that open the circuit breaker, if no connection was made or given back in between; 0 is no breaker", func(c *Config) *int { return &c.BreakerFailures }),
	duration("pool_breaker_cooldown", "10s", 1, "how long an open breaker waits before it lets one dial try", func(c *Config) *time.Duration { return &c.BreakerCooldown }),
}

func number(name, value string, least int, doc string, field func(*Config) *int) option {
	return option{
		name: name, value: value, doc: doc,
		set: func(c *Config, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return errors.New("wants a whole number")
			}
			*field(c) = n
			return nil
		},
		get: func(c *Config) string { return strconv.Itoa(*field(c)) },
		check: func(c *Config) error {
			if n := *field(c); n < least {
				return fmt.Errorf("%d is too small; the least is %d", n, least)
			}
			return nil
		},
	}
}

func flag(name, value, doc string, field func(*Config) *bool) option {
	return option{
		name: name, value: value, doc: doc,
		set: func(c *Config, s string) error {
			on, err := strconv.ParseBool(s)
			if err != nil {
				return errors.New("wants true or false")
			}
			*field(c) = on
			return nil
		},
		get:   func(c *Config) string { return strconv.FormatBool(*field(c)) },
		check: func(*Config) error { return nil },
	}
}

func duration(name, value string, least time.Duration, doc string, field func(*Config) *time.Duration) option {
	return option{
		name: name, value: value, doc: doc,
		set: func(c *Config, s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				return errors.New("wants a duration with its unit, such as 30s or 5m")
			}
			*field(c) = d
			return nil
		},
		get: func(c *Config) string { return field(c).String() },
		check: func(c *Config) error {
			if d := *field(c); d < least {
				return fmt.Errorf("%v is too short; the least is %v", d, least)
			}
			return nil
		},
	}
}

// lifetime is a duration that may be 0 but not small.
func lifetime() option {
	const least = time.Second
	o := duration("pool_max_conn_lifetime", "1h0m0s", 0, "age at which a connection is replaced, 1s at least; 0 is never", func(c *Config) *time.Duration { return &c.MaxConnLifetime })
	check := o.check
	o.check = func(c *Config) error {
		if d := c.MaxConnLifetime; d > 0 && d < least {
			return fmt.Errorf("%v is too short: statements would wait for new connections all the time, each of which is dialled only when the server has let go of the one before; the least is %v, and 0 is never", d, least)
		}
		return check(c)
	}
	return o
}

// lifetimeJitter is a duration whose default depends on another row.
func lifetimeJitter() option {
	const tenth = "10%"
	o := duration("pool_max_conn_lifetime_jitter", tenth, -1, "most by which a lifetime is lengthened at random", func(c *Config) *time.Duration { return &c.MaxConnLifetimeJitter })
	set, get := o.set, o.get
	o.set = func(c *Config, s string) error {
		if s == tenth {
			c.MaxConnLifetimeJitter = -1
			return nil
		}
		if err := set(c, s); err != nil || c.MaxConnLifetimeJitter >= 0 {
			return err
		}
		return errors.New("wants no negative duration")
	}
	o.get = func(c *Config) string {
		if c.MaxConnLifetimeJitter < 0 {
			return tenth
		}
		return get(c)
	}
	o.check = func(*Config) error { return nil }
	return o
}

// word is an option that takes one of some words; the field holds its index.
func word(name, value, doc string, words []string, field func(*Config) *uint8) option {
	wants := "wants one of " + strings.Join(words, ", ")
	return option{
		name: name, value: value, doc: doc + ": " + strings.Join(words, ", "),
		set: func(c *Config, s string) error {
			i := slices.Index(words, s)
			if i < 0 {
				return errors.New(wants)
			}
			*field(c) = uint8(i)
			return nil
		},
		get: func(c *Config) string {
			if i := int(*field(c)); i < len(words) {
				return words[i]
			}
			return strconv.Itoa(int(*field(c)))
		},
		check: func(c *Config) error {
			if int(*field(c)) >= len(words) {
				return errors.New(wants)
			}
			return nil
		},
	}
}

func bytes(name, value, doc string, field func(*Config) *int64) option {
	return option{
		name: name, value: value, doc: doc,
		set: func(c *Config, s string) error {
			n, err := bytesize.Parse(s)
			if err == nil {
				*field(c) = n
			}
			return err
		},
		get: func(c *Config) string { return bytesize.Format(*field(c)) },
		check: func(c *Config) error {
			if n := *field(c); n < 0 {
				return fmt.Errorf("%d bytes are too few; the least is 0", n)
			}
			return nil
		},
	}
}

// apply sets what the DSN's pool_ parameters say. Errors name the parameter,
// never its value: in a mistyped DSN that may be anything.
func (c *Config) apply(params []dialects.Param) error {
	seen := make(map[string]bool)
	for _, p := range params {
		i := slices.IndexFunc(options, func(o option) bool { return o.name == p.Name })
		if i < 0 {
			return fmt.Errorf("the DSN has an unknown pool_ parameter; the known ones are %s", optionNames())
		}
		if seen[p.Name] {
			return fmt.Errorf("the DSN has the parameter %s twice", p.Name)
		}
		seen[p.Name] = true
		if err := options[i].set(c, p.Value); err != nil {
			return fmt.Errorf("the DSN's parameter %s %w", p.Name, err)
		}
	}
	return nil
}

func optionNames() string {
	var names []string
	for _, o := range options {
		names = append(names, o.name)
	}
	return strings.Join(names, ", ")
}
