package escape

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// secretPrefix begins every secret of these tests. The attacker knows it, and no more: he looks for what follows.
const secretPrefix = "MONOPOD-SECRET-"

var secretForm = regexp.MustCompile(secretPrefix + `[A-Z2-7]{26}`)

// TestSecretsOfOtherPods: a container with CAP_SYS_PTRACE and CAP_KILL stops and reads every process that appears in its PID namespace: its memory,
// environment, descriptors and open files. Meanwhile commands are started in it, while containers of other pods are created, started and asked to
// execute commands with a secret in their environments.
//
// The attacker would have won if he saw one of these secrets: then what starts a process inside still has the memory of what serves all pods.
func TestSecretsOfOtherPods(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		attacker := n.pod(nil).launch(able(command("/attack", "spy"), "SYS_PTRACE", "KILL", "SYS_ADMIN", "DAC_READ_SEARCH"))
		attacker.says("ready")
		victim := n.pod(nil)
		var secrets []string
		withSecret := func(cfg *cri.ContainerConfig) *cri.ContainerConfig {
			secrets = append(secrets, secretPrefix+rand.Text())
			cfg.Envs = []*cri.KeyValue{{Key: "SECRET", Value: []byte(secrets[len(secrets)-1])}}
			return cfg
		}
		holder := victim.launch(withSecret(shell(sleeper)))
		for range rounds(30) {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { _, _ = attacker.tryExec(int64(harness.SlowFactor()), "/bin/true") }) // stopped by the attacker, mostly
			}
			c := victim.launch(withSecret(shell("true")))
			if got := holder.exec("sh", "-c", "echo $SECRET"); got != secrets[0] {
				n.Errorf("the victim has the secret %q", got)
			}
			wg.Wait()
			c.stop()
		}
		out := attacker.printed()
		if !strings.Contains(out, "looked at") {
			n.Errorf("the attacker has seen no process at all:\n%s", out)
		}
		for _, secret := range secrets {
			if i := strings.Index(out, secret); i >= 0 {
				n.Fatalf("the attacker knows a secret of another pod: %s", out[strings.LastIndexByte(out[:i], '\n')+1:i+len(secret)])
			}
		}
	})
}

// spy stops whatever appears in its PID namespace, reads it, and lets it go on.
func spy([]string) error {
	fmt.Println("ready")
	looked := 0
	go func() {
		for { // who has just been born is stopped before he does anything
			_ = unix.Kill(-1, unix.SIGSTOP)
		}
	}()
	for {
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil || pid == os.Getpid() {
				continue
			}
			read := look(dir)
			if looked++; read && looked < 1000 {
				exe, _ := os.Readlink(dir + "/exe")
				fmt.Println("looked at", pid, exe)
			}
			_ = unix.Kill(pid, unix.SIGCONT)
			_ = unix.Kill(pid, unix.SIGKILL) // the next one, please
		}
	}
}

// look searches a process for secrets, and says whether there was something to be read.
func look(dir string) (read bool) {
	find := func(what string, data []byte) {
		for _, s := range secretForm.FindAll(data, -1) {
			fmt.Printf("FOUND in %s: %s\n", what, s)
		}
	}
	for _, name := range []string{"environ", "cmdline"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			find(name, data)
		}
	}
	maps, err := os.ReadFile(dir + "/maps")
	if err != nil {
		return false
	}
	mem, err := os.Open(dir + "/mem")
	if err != nil {
		return false
	}
	defer mem.Close()
	for line := range bytes.Lines(maps) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(string(line), "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "r") {
			continue
		}
		const page = 1 << 20
		for at := from; at < to; at += page {
			buf := make([]byte, min(page+64, to-at)) // a secret may lie across the border
			got, err := mem.ReadAt(buf, at)
			if got > 0 {
				read = true
				find("memory at "+strings.TrimSpace(string(line)), buf[:got])
			}
			if err != nil && !errors.Is(err, unix.EIO) {
				break
			}
		}
	}
	return read
}
