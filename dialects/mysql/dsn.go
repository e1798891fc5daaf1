package mysql

import (
	"cmp"
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

// endpoint is where a server listens.
type endpoint struct {
	network string // "tcp", "unix" or one that the program registered
	address string
}

func (p endpoint) String() string {
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
	more           []endpoint // besides the first server
	database       string
	query          string // the parameters as they stand
}

func (p *parts) endpoints() []endpoint { return append([]endpoint{{p.network, p.address}}, p.more...) }

// add adds a server, unless the DSN has named it before.
func (p *parts) add(at endpoint) {
	switch {
	case p.network == "":
		p.network, p.address = at.network, at.address
	case !slices.Contains(p.endpoints(), at):
		p.more = append(p.more, at)
	}
}

// There is one error for each place of a DSN. None quotes the DSN: in a mistyped DSN the password may
// stand anywhere.
var (
	errSlash    = errors.New("the slash before the database's name is missing; the form is user:password@tcp(host:port)/database, with nothing after the slash where there is no database")
	errList     = errors.New("a host is missing before, after or between the commas of the list of hosts; in a URL " + dialects.InPassword)
	errHost     = errors.New("what stands before the slash is no host of a URL, and no network and address such as tcp(host:port) or unix(/path); one of = & ; is refused for it may belong to a password; in a URL, " + dialects.InPassword)
	errPort     = errors.New("the port is not a number from 1 to 65535; an IPv6 address stands in brackets, and in a URL, " + dialects.InPassword)
	errUser     = errors.New("the user's name has an encoded colon or one of = & ; , / ? # in it, which is refused for it may be a password; user and password are parted by a colon, which is written as it is")
	errDatabase = errors.New("the database's name has one of @ / : = & ; , in it, which is refused for it may be a password, or a % without two hexadecimal digits; @, / and % are written %40, %2F and %25, and parameters follow a ? and are parted by &")
	errEscape   = errors.New("in a URL there is an @ too many, or a % without two hexadecimal digits; " + dialects.InPassword + "; in front of a list of hosts, user and password stand once")
	errValue    = errors.New("the last slash stands in the parameters; in a parameter's value it is written %2F")
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
	case strings.ContainsAny(p.user, ":=&;,/?#"):
		return errUser
	case strings.ContainsAny(p.database, ":=&;,"):
		return errDatabase
	case slices.ContainsFunc(p.endpoints(), func(at endpoint) bool { return strings.ContainsAny(at.address, "=&;") }):
		return errHost
	}
	return nil
}

// takeNative reads the driver's own form, by the driver's rules: the last slash
// ends the address, the last @ before it ends the password, the first colon
// ends the user.
func takeNative(dsn string) (p parts, err error) {
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 0 {
		return p, errSlash
	}
	before, after := dsn[:slash], dsn[slash+1:]
	if at := strings.LastIndexByte(before, '@'); at >= 0 {
		p.user, p.password, _ = strings.Cut(before[:at], ":")
		before = before[at+1:]
	}
	network, list, given := strings.Cut(before, "(")
	list, closed := strings.CutSuffix(list, ")")
	switch {
	case given == closed && containsOnly(network, "+-._"):
		err = p.addList(network, list)
	case strings.Contains(before, "?"):
		err = errValue
	default:
		err = errHost
	}
	if err != nil {
		return p, err
	}
	after, p.query, _ = strings.Cut(after, "?")
	return p, p.setDatabase(after)
}

// addList parses a list of addresses. A path belongs to a socket; a path with a comma in it stays whole.
func (p *parts) addList(network, list string) error {
	all := strings.Split(list, ",")
	ofPaths := strings.Count(","+list, ",/") == len(all)
	if network != "" && network != "tcp" && (network != "unix" || !ofPaths) {
		all = []string{list}
	}
	for _, address := range all {
		at := endpoint{network, address}
		if strings.HasPrefix(address, "/") && (network == "" || network == "tcp") {
			at.network = "unix"
		}
		at = at.orDefault()
		switch {
		case address == "" && len(all) > 1:
			return errList
		case at.network == "tcp" && !containsOnly(at.address, "-._:%[]"), at.address == "":
			return errHost
		}
		p.add(at)
	}
	return nil
}

// orDefault is p with the driver's defaults (go-sql-driver/mysql 1.10, Config.normalize). Another network has none.
func (p endpoint) orDefault() endpoint {
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

// containsOnly reports whether s has nothing but letters, digits and the extra ones.
func containsOnly(s, extra string) bool {
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
	end := strings.IndexAny(rest+"/", "/?")
	authority, after := rest[:end], rest[end:]
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		p.user, p.password, _ = strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
	}
	if strings.Contains(p.user+p.password+after, "@") {
		return p, errEscape // app:…@db1,app:…@db2 would lead to db2 alone
	}
	if err := p.decodeUser(); err != nil {
		return p, err
	}
	list := strings.Split(authority, ",")
	for _, host := range list {
		if host == "" && len(list) > 1 {
			return p, errList
		}
		at, err := hostPort(host)
		if err != nil {
			return p, err
		}
		p.add(at)
	}
	after, p.query, _ = strings.Cut(strings.TrimPrefix(after, "/"), "?")
	if err := p.setDatabase(after); err != nil {
		return p, err
	}
	return p, p.takeSocket()
}

// decodeUser refuses a colon in the user's name: behind it may stand a password.
func (p *parts) decodeUser() (err error) {
	var failed error
	p.user, err = url.PathUnescape(p.user)
	p.password, failed = url.PathUnescape(p.password)
	switch {
	case err != nil || failed != nil:
		return errEscape
	case strings.Contains(p.user, ":"):
		return errUser
	}
	return nil
}

// hostPort reads host, host:port, [IPv6] and [IPv6]:port, and a socket's path with
// its slashes written %2F.
func hostPort(hostport string) (endpoint, error) {
	if dialects.HasPrefix(hostport, "%2f") {
		path, err := url.PathUnescape(hostport)
		if err != nil {
			return endpoint{}, errEscape
		}
		return endpoint{"unix", path}, nil
	}
	if strings.LastIndexByte(hostport, ':') <= strings.LastIndexByte(hostport, ']') { // no port
		hostport += ":3306"
	}
	host, port, err := net.SplitHostPort(hostport)
	if n, failed := strconv.ParseUint(port, 10, 16); err != nil || failed != nil || n == 0 {
		return endpoint{}, errPort
	}
	host = strings.ReplaceAll(host, "%25", "%") // the zone of a link-local address
	if extra := "-._"; !containsOnly(host, extra) && (!strings.Contains(host, ":") || !containsOnly(host, extra+":%")) {
		return endpoint{}, errHost
	}
	return endpoint{"tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)}, nil
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
			return errEscape
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
	word := strings.IndexFunc(dsn, func(r rune) bool { return !containsOnly(string(r), "_ \t+-.") })
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
	case err == nil, strings.IndexByte(dsn, '@') > 0 && !errors.Is(err, errSlash):
		return dialects.Perhaps
	}
	return dialects.NotMine
}
