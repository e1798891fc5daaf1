package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
	tclog "github.com/testcontainers/testcontainers-go/log"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// OwnerLabel names the process a container belongs to, as host/pid.
const OwnerLabel = "com.github.pooldriver.testbed.owner"

type silent struct{}

func (silent) Printf(string, ...any) {}

// prepare runs once per process, before the first container.
var prepare = sync.OnceValue(func() error {
	tclog.SetDefault(silent{})
	// testcontainers' own reaper is one more image to have. reap does its work.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return err
	}
	docker, err := testcontainers.NewDockerClientWithOpts(context.Background())
	if err != nil {
		return fmt.Errorf("testbed: no Docker daemon answers; the integration tests need one (\"make test-unit\" does not): %w", err)
	}
	defer docker.Close()
	if err := reap(); err != nil {
		return err
	}
	return sweep(docker)
})

// living has the end of reap's pipe that closes with this process. It is a variable of
// the package so that the garbage collector does not close the file.
var living []*os.File

// reap starts a shell that outlives this process, however it ends: by SIGKILL, a test's
// timeout, an interrupted "go test". The shell then removes what the process has left.
// The pipe is how it knows: its writing end is open for as long as the process lives.
// A session of its own keeps the shell from signals for the process group.
func reap() error {
	alive, end, err := os.Pipe()
	if err != nil {
		return err
	}
	living = append(living, end)
	defer alive.Close()
	const remove = `cat
		docker ps -aq --filter label="$0" | xargs -r docker rm -fv
		docker network ls -q --filter label="$0" | xargs -r docker network rm`
	shell := exec.Command("sh", "-c", remove, OwnerLabel+"="+owner())
	shell.Stdin = alive
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := shell.Start(); err != nil {
		return fmt.Errorf("testbed: starting the shell that removes forgotten containers: %w", err)
	}
	return shell.Process.Release()
}

func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// sweep removes containers and networks whose test process on this host is gone, and
// reap's shell with it: all processes were killed, or the machine has restarted.
func sweep(docker *testcontainers.DockerClient) error {
	ctx := context.Background()
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", OwnerLabel),
	})
	if err != nil {
		return fmt.Errorf("testbed: listing containers: %w", err)
	}
	// An error of a removal means that another test process swept it first.
	for _, item := range list.Items {
		if orphaned(item.Labels) {
			_, _ = docker.ContainerRemove(ctx, item.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{
		Filters: make(client.Filters).Add("label", OwnerLabel),
	})
	if err != nil {
		return fmt.Errorf("testbed: listing networks: %w", err)
	}
	for _, item := range networks.Items {
		if orphaned(item.Labels) {
			_, _ = docker.NetworkRemove(ctx, item.ID, client.NetworkRemoveOptions{})
		}
	}
	return nil
}

// orphaned: the labels name a process of this host that is gone.
func orphaned(labels map[string]string) bool {
	self, _, _ := strings.Cut(owner(), "/")
	host, pid, _ := strings.Cut(labels[OwnerLabel], "/")
	number, err := strconv.Atoi(pid)
	return err == nil && host == self && !alive(number)
}

func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = process.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}

// hostNetwork reports whether a container can listen on our 127.0.0.1 itself. A published port is served by a proxy of
// Docker's on 127.0.0.1, which takes more of the processors than a short query does. No container can if the daemon is on another machine, in
// a virtual one, or has a network of its own because it runs without root.
var hostNetwork = sync.OnceValue(func() bool {
	if prepare() != nil {
		return false // which the first container tells
	}
	docker, err := testcontainers.NewDockerClientWithOpts(context.Background())
	if err != nil {
		return false
	}
	defer docker.Close()
	info, err := docker.Info(context.Background(), client.InfoOptions{})
	if err != nil {
		return false
	}
	host, _ := os.Hostname()
	rootless := slices.ContainsFunc(info.Info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") })
	return runtime.GOOS == "linux" && info.Info.Name == host && !rootless
})

// boxed is a container to be: an image with one port, which is published on a
// port of 127.0.0.1 that stays the same over restarts; or, with listen, which listens
// there itself.
type boxed struct {
	title      string // for errors
	image      string
	port       string
	env        map[string]string
	tmpfs      map[string]string // directories whose contents do not survive a stop
	volume     string            // a directory whose contents do, outside of the image's layers, which are slow
	files      []testcontainers.ContainerFile
	entrypoint []string // the image's own, if empty
	command    []string
	user       string   // the image's own, if empty
	network    *Network // nil is Docker's own
	alias      string   // its name in network
	listen     func(port string) (arguments []string)
}

// startMade is the entrypoint of a server, whose data directory is $0. Images of "make images" have it made already.
const startMade = `[ ! -d /initialised ] || [ -n "$(ls -A "$0")" ] || cp -a /initialised/. "$0"; exec docker-entrypoint.sh "$@"`

// runContainer starts a server that stands alone.
func runContainer(ctx context.Context, engine Engine, o options, files []testcontainers.ContainerFile) (*testcontainers.DockerContainer, string, error) {
	variable, official := engine.image()
	env, data := engine.environment()
	b := boxed{
		title: engine.String(), image: image(variable, official), port: engine.port(),
		env: env, tmpfs: map[string]string{}, files: files, command: engine.command(o),
		network: o.network, alias: o.alias, entrypoint: []string{"sh", "-c", startMade, data},
	}
	if o.network == nil && (o.hostNetwork || hostNetwork()) {
		b.listen = engine.listen
	}
	if o.restartable {
		b.volume = data
	} else {
		b.tmpfs[data] = "rw"
	}
	return b.run(ctx)
}

func (b boxed) run(ctx context.Context) (*testcontainers.DockerContainer, string, error) {
	if err := prepare(); err != nil {
		return nil, "", err
	}
	published, err := network.ParsePort(b.port + "/tcp")
	if err != nil {
		return nil, "", err
	}
	customize := []testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(b.env),
		testcontainers.WithTmpfs(b.tmpfs),
		testcontainers.WithFiles(b.files...),
		testcontainers.WithLabels(map[string]string{OwnerLabel: owner()}),
		testcontainers.WithConfigModifier(func(config *container.Config) { config.User = b.user }),
	}
	if len(b.entrypoint) > 0 {
		customize = append(customize, testcontainers.WithEntrypoint(b.entrypoint...))
	}
	if b.network != nil {
		customize = append(customize, tcnetwork.WithNetworkName([]string{b.alias}, b.network.docker.Name))
	}
	// Between choosing a free port and publishing it somebody may take it.
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return nil, "", err
		}
		command := b.command
		if b.listen != nil {
			command = slices.Concat(command, b.listen(port))
		}
		at := []testcontainers.ContainerCustomizer{
			testcontainers.WithCmd(command...),
			testcontainers.WithHostConfigModifier(func(host *container.HostConfig) { b.place(host, published, port) }),
		}
		if b.listen == nil {
			at = append(at, testcontainers.WithExposedPorts(b.port+"/tcp"))
		}
		c, err := testcontainers.Run(ctx, b.image, slices.Concat(customize, at)...)
		if err == nil {
			return c, net.JoinHostPort("127.0.0.1", port), nil
		}
		if c != nil {
			err = errors.Join(err, c.Terminate(context.WithoutCancel(ctx)))
		}
		taken := strings.Contains(err.Error(), "already allocated") || strings.Contains(err.Error(), "address already in use")
		if attempt == 3 || !taken {
			return nil, "", fmt.Errorf("testbed: starting %s from image %q (\"make images\" provides it): %w", b.title, b.image, err)
		}
	}
}

// place says where the container's files are, and how its port is reached.
func (b boxed) place(host *container.HostConfig, published network.Port, port string) {
	if b.volume != "" {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Target: b.volume})
	}
	if b.listen != nil {
		host.NetworkMode = "host"
		return
	}
	host.PortBindings = network.PortMap{published: {{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: port}}}
}

// claims has the ports of this process: a socket of Linux's that has no file belongs to one process, and ends with it.
// A server that listens itself does so seconds after its port was chosen, and says in its log only that somebody else
// has it. It is a variable of the package so that the garbage collector does not close the sockets.
var claims sync.Map

// claim makes a port this process's, among all test processes.
func claim(port string) error {
	if !hostNetwork() {
		return nil
	}
	socket, err := net.Listen("unix", "@pooldriver-testbed-"+port)
	if err == nil {
		claims.Store(port, socket)
	}
	return err
}

// freePort is below those that a system gives to clients (Linux: from 32768 on), so
// that no client has it while its server is down.
func freePort() (string, error) {
	for attempt := 1; ; attempt++ {
		port := strconv.Itoa(20000 + rand.IntN(12000))
		err := claim(port)
		var listener net.Listener
		if err == nil {
			listener, err = net.Listen("tcp", "127.0.0.1:"+port)
		}
		if err == nil {
			return port, listener.Close()
		}
		if attempt == 100 {
			return "", err
		}
	}
}

// execute runs a command in the container as root.
func execute(ctx context.Context, c *testcontainers.DockerContainer, command ...string) error {
	code, output, err := c.Exec(ctx, command, tcexec.WithUser("root"), tcexec.Multiplexed())
	if err != nil {
		return fmt.Errorf("testbed: %q in the container: %w", command, err)
	}
	if code != 0 {
		text, _ := io.ReadAll(output)
		return fmt.Errorf("testbed: %q in the container: exit status %d: %s", command, code, text)
	}
	return nil
}

// kill sends SIGKILL to the container's first process and waits for its end.
func kill(ctx context.Context, c *testcontainers.DockerContainer) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	if _, err := docker.ContainerKill(ctx, c.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		return fmt.Errorf("testbed: kill: %w", err)
	}
	wait := docker.ContainerWait(ctx, c.GetContainerID(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case err := <-wait.Error:
		return err
	case <-wait.Result:
		return nil
	}
}

// confine leaves the container these processors.
func confine(ctx context.Context, c *testcontainers.DockerContainer, processors string) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	_, err = docker.ContainerUpdate(ctx, c.GetContainerID(), client.ContainerUpdateOptions{
		Resources: &container.Resources{CpusetCpus: processors},
	})
	return err
}

// lastLog returns the end of the container's log, for error messages.
func lastLog(ctx context.Context, c *testcontainers.DockerContainer) string {
	reader, err := c.Logs(context.WithoutCancel(ctx))
	if err != nil {
		return err.Error()
	}
	defer reader.Close()
	text, _ := io.ReadAll(reader)
	return string(text[max(0, len(text)-2000):])
}
