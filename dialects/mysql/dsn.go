package mysql

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

const ownPrefix = "mysql:"

// urlPrefixes are the schemes of a URL. MariaDB's clients have a scheme of their own.
var urlPrefixes = []string{"mysql://", "mariadb://"}

// place is where a server listens.
type place struct {
	network string // "tcp", "unix" or one that the program registered
	address string
}

func (p place) String() string {
	if p.network == "tcp" {
		return p.address
	}
	return p.network + "(" + p.address + ")"
}

// parts are the pieces of a DSN. Only parts that need decoding are decoded.
type parts struct {
	user, password string
	network        string // of the first server
	address        string
	more           []place // besides the first server
	database       string
	query          string // the parameters as they stand
}

func (p *parts) places() []place { return append([]place{{p.network, p.address}}, p.more...) }

// The errors of this file say what is wrong and never quote the DSN: in a mistyped DSN the password
// may stand anywhere.
var (
	errNoSlash      = errors.New("the slash before the database's name is missing; the form is user:password@tcp(host:port)/database, with nothing after the slash where there is no database")
	errParenthesis  = errors.New("the address after the network does not end in a closing parenthesis before the slash; a slash in a parameter's value is written %2F")
	errNetwork      = errors.New("what stands before the slash is no network and address such as tcp(host:port) or unix(/path); a slash in a parameter's value is written %2F")
	errEmptyHost    = errors.New("a host is missing before, after or between the commas of the list of hosts; in a URL " + dialects.InPassword)
	errHost         = errors.New("the host has characters that no host has; in a URL, " + dialects.InPassword)
	errPort         = errors.New("the port is not a number from 1 to 65535; an IPv6 address stands in brackets, and in a URL, " + dialects.InPassword)
	errStrayAt      = errors.New("there is an @ behind the first / or ?; " + dialects.InPassword)
	errSecondAt     = errors.New("there is more than one @ before the hosts; " + dialects.InPassword + "; in front of a list of hosts, user and password stand once")
	errDatabase     = errors.New("the database's name has an @ or a slash in it, or a % without two hexadecimal digits; there they are written %40, %2F and %25")
	errEscape       = errors.New("user or password has a % without two hexadecimal digits; " + dialects.InPassword)
	errColonInUser  = errors.New("the user's name has an encoded colon in it; the colon between user and password is written as it is")
	errUser         = errors.New("the user's name has one of = & ; , / ? # in it, which is refused for it may be a password; user and password are parted by a colon")
	errJoined       = errors.New("the database's name has one of : = & ; , in it, which is refused for it may be a password; parameters follow a ? and are parted by &")
	errAddress      = errors.New("the address has one of = & ; in it, which is refused for it may be a password; parameters follow the database's name and a ?")
	errSocketEscape = errors.New(`the value of the parameter "socket" has a % without two hexadecimal digits`)
)

func take(dsn string) (parts, error) {
	p, err := takeForm(dsn)
	if err != nil {
		return p, err
	}
	return p, p.checkShown()
}

func takeForm(dsn string) (parts, error) {
	for _, prefix := range urlPrefixes {
		if dialects.HasPrefix(dsn, prefix) {
			return takeURL(dsn[len(prefix):])
		}
	}
	if dialects.HasPrefix(dsn, ownPrefix) {
		dsn = dsn[len(ownPrefix):]
	}
	return takeNative(dsn)
}

// checkShown refuses parts that may show a password in the target: parts with a character by which
// a mistyped DSN joins two parts.
func (p *parts) checkShown() error {
	switch {
	case strings.ContainsAny(p.user, "=&;,/?#"):
		return errUser
	case strings.ContainsAny(p.database, ":=&;,"):
		return errJoined
	}
	for _, at := range p.places() {
		if strings.ContainsAny(at.address, "=&;") {
			return errAddress
		}
	}
	return nil
}

// takeNative reads the driver's own form, by the driver's rules: the last slash
// ends the address, the last @ before it ends the password, the first colon
// ends the user.
func takeNative(dsn string) (parts, error) {
	var p parts
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 0 {
		return p, errNoSlash
	}
	before, after := dsn[:slash], dsn[slash+1:]
	if at := strings.LastIndexByte(before, '@'); at >= 0 {
		p.user, p.password, _ = strings.Cut(before[:at], ":")
		before = before[at+1:]
	}
	network, address, given := strings.Cut(before, "(")
	if given {
		var closed bool
		if address, closed = strings.CutSuffix(address, ")"); !closed {
			return p, errParenthesis
		}
	}
	if err := p.setAddresses(network, address); err != nil {
		return p, err
	}
	after, p.query, _ = strings.Cut(after, "?")
	return p, p.setDatabase(after)
}

// setAddresses parses a list of addresses. A path belongs to a socket; a path with a
// comma in it stays whole.
func (p *parts) setAddresses(network, list string) error {
	if !only(network, "+-._") {
		return errNetwork
	}
	all := strings.Split(list, ",")
	isPath := func(address string) bool { return strings.HasPrefix(address, "/") }
	if network != "" && network != "tcp" && (network != "unix" || slices.ContainsFunc(all, func(address string) bool { return !isPath(address) })) {
		all = []string{list}
	}
	return p.each(all, func(at *place, address string) error {
		if isPath(address) && (network == "" || network == "tcp") {
			return at.setAddress("unix", address)
		}
		return at.setAddress(network, address)
	})
}

// each reads the addresses of a list.
func (p *parts) each(list []string, read func(at *place, address string) error) error {
	var places []place
	for _, address := range list {
		if address == "" && len(list) > 1 {
			return errEmptyHost
		}
		var at place
		if err := read(&at, address); err != nil {
			return err
		}
		if !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	p.network, p.address = places[0].network, places[0].address
	if len(places) > 1 {
		p.more = places[1:]
	}
	return nil
}

// setAddress fills in the driver's defaults, and refuses what is no address.
func (p *place) setAddress(network, address string) error {
	*p = place{network, address}.orDefault()
	switch {
	case p.network == "tcp" && !only(p.address, "-._:%[]"):
		return errHost
	case p.address == "":
		return errNetwork
	}
	return nil
}

// orDefault is p with the driver's defaults (go-sql-driver/mysql 1.10, Config.normalize). Another network has none.
func (p place) orDefault() place {
	if p.network == "" {
		p.network = "tcp"
	}
	switch {
	case p.network == "unix" && p.address == "":
		p.address = "/tmp/mysql.sock"
	case p.network == "tcp":
		switch host, _, err := net.SplitHostPort(p.address); {
		case p.address == "":
			p.address = "127.0.0.1:3306"
		case err != nil:
			p.address = net.JoinHostPort(p.address, "3306")
		case host == "":
			p.address = "127.0.0.1" + p.address
		}
	}
	return p
}

func (p *parts) setDatabase(escaped string) error {
	name, err := url.PathUnescape(escaped)
	if err != nil || strings.ContainsAny(escaped, "@/") {
		return errDatabase
	}
	p.database = name
	return nil
}

// only reports whether s has nothing but letters, digits and the extra ones.
func only(s, extra string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if digit := '0' <= c && c <= '9'; !letter && !digit && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}

// takeURL reads what follows the scheme. Some programs write the driver's form there, with its
// network: takeURL understands that too.
func takeURL(rest string) (parts, error) {
	if p, err := takeNative(rest); err == nil && p.user != "" && strings.Contains(rest, "@"+p.network+"(") {
		return p, p.decodeUser()
	}
	var p parts
	authority, after := rest, ""
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		authority, after = rest[:end], rest[end:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if strings.Contains(authority[:at], "@") {
			// app:…@db1,app:…@db2 would lead to db2 alone.
			return p, errSecondAt
		}
		p.user, p.password, _ = strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
	}
	if strings.Contains(after, "@") {
		return p, errStrayAt
	}
	if err := p.decodeUser(); err != nil {
		return p, err
	}
	if err := p.each(strings.Split(authority, ","), (*place).setHost); err != nil {
		return p, err
	}
	after, p.query, _ = strings.Cut(strings.TrimPrefix(after, "/"), "?")
	if err := p.setDatabase(after); err != nil {
		return p, err
	}
	return p, p.takeSocket()
}

func (p *parts) decodeUser() error {
	user, errUser := url.PathUnescape(p.user)
	password, errPassword := url.PathUnescape(p.password)
	switch {
	case errUser != nil || errPassword != nil:
		return errEscape
	case strings.Contains(user, ":"):
		// Without this, a password joined to the user by %3A would be shown
		// as the user's name.
		return errColonInUser
	}
	p.user, p.password = user, password
	return nil
}

// setHost reads host, host:port, [IPv6] and [IPv6]:port, and a socket's path with
// its slashes written %2F.
func (p *place) setHost(hostport string) error {
	if dialects.HasPrefix(hostport, "%2f") {
		path, err := url.PathUnescape(hostport)
		if err != nil {
			return errHost
		}
		p.network, p.address = "unix", path
		return nil
	}
	var host string
	port := "3306"
	if bare, found := strings.CutPrefix(hostport, "["); found {
		inside, behind, closed := strings.Cut(bare, "]")
		if !closed {
			return errHost
		}
		host = inside
		if behind != "" {
			if behind[0] != ':' {
				return errPort
			}
			port = behind[1:]
		}
		host = strings.ReplaceAll(host, "%25", "%") // the zone of a link-local address
		if !only(host, ":.%-_") {
			return errHost
		}
	} else {
		var behind string
		var given bool
		if host, behind, given = strings.Cut(hostport, ":"); given {
			port = behind
		}
		if !only(host, "-._") {
			return errHost
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errPort
	}
	if host == "" {
		host = "127.0.0.1"
	}
	p.network, p.address = "tcp", net.JoinHostPort(host, port)
	return nil
}

// takeSocket takes the parameter "socket" of a URL out of the query.
func (p *parts) takeSocket() error {
	var rest []string
	for pair := range strings.SplitSeq(p.query, "&") {
		value, found := strings.CutPrefix(pair, "socket=")
		if !found {
			rest = append(rest, pair)
			continue
		}
		path, err := url.QueryUnescape(value)
		if err != nil {
			return errSocketEscape
		}
		p.network, p.address, p.more = "unix", path, nil
	}
	p.query = strings.Join(rest, "&")
	return nil
}

// claim knows a DSN by its shape. A DSN that is claimed but cannot be read gets an error that says
// why. If it was not claimed, the error would call it unknown.
func claim(dsn string) dialects.Claim {
	for _, prefix := range append(urlPrefixes, ownPrefix) {
		if dialects.HasPrefix(dsn, prefix) {
			return dialects.Surely
		}
	}
	word := strings.IndexFunc(dsn, func(r rune) bool { return !only(string(r), "_ \t+-.") })
	switch {
	case word < 0:
		return dialects.NotMine // no slash
	case dsn[word] == '=', strings.HasPrefix(dsn[word:], "://"), dialects.HasPrefix(dsn, "file:"):
		return dialects.NotMine // key=value of PostgreSQL and ODBC, another URL, SQLite
	case strings.Contains(dsn, "@tcp("), strings.Contains(dsn, "@unix("):
		return dialects.Surely
	}
	p, err := takeNative(dsn)
	switch {
	case err == nil && strings.HasPrefix(dsn, p.network+"("):
		return dialects.Surely
	case err == nil, strings.IndexByte(dsn, '@') > 0 && !errors.Is(err, errNoSlash):
		return dialects.Perhaps
	}
	return dialects.NotMine
}
