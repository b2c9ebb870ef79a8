package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/page"
)

// TestTutorial types docs/TUTORIAL.md into a shell, command for command, and holds what comes back against the page. The machine is a bare one: its network, its
// name, its processes and what lies in /etc, /run, /srv and /var are its own.
func TestTutorial(t *testing.T) {
	root := harness.Root(t)
	if dir := filepath.Dir(harness.Bin(t, "monopod")); dir != filepath.Join(root, "bin") || os.Getenv("MONOPOD_BIN") != "" {
		t.Skipf("the page's programs are in bin of the repository, those of this run in %s", dir)
	}
	raw, err := os.ReadFile(filepath.Join(root, "docs/TUTORIAL.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands, err := page.Read(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	if len(commands) < 40 {
		t.Fatalf("docs/TUTORIAL.md has %d commands only", len(commands))
	}
	m := startMachine(t, root)
	for _, c := range commands {
		began := time.Now()
		m.try(c)
		t.Logf("%6.2fs  %s", time.Since(began).Seconds(), c.Text)
	}
}

// looks are the commands that change nothing: who reads the page is slower than this test, so they are asked again until they answer as the page has it.
var looks = regexp.MustCompile(`^(kubectl (get|top|logs|exec|describe) |curl http|monopod (status|dns status|device ls|image ls))`)

// bareMachine is a shell in namespaces of its own.
type bareMachine struct {
	t      *testing.T
	typed  io.Writer
	answer *answers
}

// answers is what the shell and its children print.
type answers struct {
	mu    sync.Mutex
	text  strings.Builder
	ended bool
	news  chan struct{} // closed at each change, and made anew
}

func (a *answers) read(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		a.mu.Lock()
		a.text.WriteString(line)
		a.ended = err != nil
		close(a.news)
		a.news = make(chan struct{})
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// since is what was printed from an offset on, and a channel that tells of more.
func (a *answers) since(offset int) (text string, ended bool, more <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()[offset:], a.ended, a.news
}

// machineScript is the first program of the machine. It reads commands, each ended by a NUL, and says after each how it ended. `make` says only whether it
// knows what to do: what it makes is there.
const machineScript = `
set -e
hostname machine
for dir in etc var; do
	mkdir -p "$DIR/$dir/upper" "$DIR/$dir/work"
	mount -t overlay overlay -o "lowerdir=/$dir,upperdir=$DIR/$dir/upper,workdir=$DIR/$dir/work" "/$dir"
done
mkdir -p "$DIR/srv" "$DIR/lib"
mount --bind "$DIR/srv" /srv
mount --bind "$DIR/lib" /var/lib # layers of images cannot be on an overlay
mount -t tmpfs -o mode=755 tmpfs /run
rm -rf /etc/monopod /etc/cdi /etc/cni
mkdir -p /etc/monopod
echo "{apiVersion: config.monopod.dev/v1alpha1, kind: NodeConfiguration, cgroupRoot: $CGROUP_ROOT, agent: {imageGCHighThresholdPercent: 100}}" >/etc/monopod/config.yaml
printf '127.0.0.1 localhost\n127.0.1.1 machine\n' >/etc/hosts
rm -f /etc/resolv.conf
echo 'nameserver 127.0.0.1' >/etc/resolv.conf
printf 'silent\nshow-error\n' >"$HOME/.curlrc" # as it is in a terminal
ip link set lo up
ip link add eth0 type veth peer name outside
ip address add 192.0.2.10/24 dev eth0
ip link set eth0 up
ip link set outside up
ip route add default via 192.0.2.1
set +e
make() { command make -n "$@" >/dev/null; }
while IFS= read -r -d '' command <&3; do
	eval "$command"
	printf '\n%s %d\n' "$MARK" $?
done
kill $(jobs -p) 2>/dev/null
wait
monopod reset --yes
`

const machineMark = "--end-of-command--"

func startMachine(t *testing.T, root string) *bareMachine {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cgroups := fmt.Sprintf("/mp-test-%d-tutorial", os.Getpid())
	harness.CheckHost(t, harness.Place{Dirs: []string{dir}, CgroupRoot: cgroups})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute*harness.SlowFactor())
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", machineScript)
	cmd.Dir = root
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "MONOPOD_") && name != "KUBECONFIG" && name != "HOME" && name != "TMPDIR" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "DIR="+dir, "HOME="+dir, "CGROUP_ROOT="+cgroups, "MARK="+machineMark)
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, printed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{in}, printed, printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	printed.Close()
	m := &bareMachine{t: t, typed: typed, answer: &answers{news: make(chan struct{})}}
	read := make(chan struct{})
	go func() { m.answer.read(out); close(read) }()
	t.Cleanup(func() {
		defer cancel()
		typed.Close() // the machine resets what it has, and ends with all its processes
		err := cmd.Wait()
		<-read
		out.Close()
		text, _, _ := m.answer.since(0)
		if err != nil {
			t.Errorf("the end of the machine: %v\n%s", err, text[max(0, len(text)-4000):])
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "var/upper/log/monopod.log"))
			t.Logf("monopod's log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	return m
}

// try types a command, and waits until it has ended and has printed what the page shows.
func (m *bareMachine) try(c page.Command) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute*harness.SlowFactor())
	defer cancel()
	var last string
	for {
		output, code, err := m.run(ctx, c)
		if err == nil && code == 0 {
			return
		}
		if last == "" || ctx.Err() == nil {
			last = fmt.Sprintf("exit code %d, %v; it printed\n%s", code, err, output)
		}
		if !looks.MatchString(c.Text) || ctx.Err() != nil {
			m.t.Fatalf("docs/TUTORIAL.md:%d: %s\n%s", c.Line, c.Text, last)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

var ended = regexp.MustCompile(`\n` + machineMark + ` (\d+)\n`)

// ofJobs is what a shell tells of its jobs, when it likes.
var ofJobs = regexp.MustCompile(`(?m)^.*: line \d+: +\d+ Terminated .*$`)

// run types a command. One that goes on in the background has printed what is shown when it has, later or sooner.
func (m *bareMachine) run(ctx context.Context, c page.Command) (output string, code int, err error) {
	before, _, _ := m.answer.since(0)
	if _, err := io.WriteString(m.typed, c.Text+"\x00"); err != nil {
		return "", -1, err
	}
	background := strings.HasSuffix(c.Text, "&")
	for {
		text, over, more := m.answer.since(len(before))
		if at := ended.FindStringSubmatchIndex(text); at != nil {
			output = ofJobs.ReplaceAllString(text[:at[0]]+"\n"+text[at[1]:], "")
			code = int(text[at[2]] - '0')
			if err = c.Prints(output); err == nil || !background {
				return output, code, err
			}
		}
		if over {
			return text, -1, fmt.Errorf("the shell has ended")
		}
		select {
		case <-more:
		case <-ctx.Done():
			return text, -1, ctx.Err()
		}
	}
}
