// Package judge lets the root and package internal/observe/metrics have a Connector judged by package inspect, which imports both.
package judge

// Verdict is a verdict of package inspect.
type Verdict struct {
	Rule, Text string
	Level      int // 0: calm, 1: busy, 2: bad
}

// Bad is the worst Level.
const Bad = 2

// Judge returns the verdicts on a *pooldriver.Connector, the worst first. The server is not asked. It is set before main begins, and nil in a
// program without package inspect.
var Judge func(connector any) []Verdict
