package plan

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/ids"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts anew")

// TestTranscripts plays scenarios with a runtime that does what it is told: what a line with ">" tells happens, and what the plan makes of it is what follows.
//
//	> pod [init=NAMES] [sidecars=NAMES] [apps=NAMES] [volumes=NAMES] [startup=NAMES] [preStop=NAMES] [policy=POLICY]   the node gets a pod
//	> done VERB [ON] [CODE]           an action has succeeded; CODE is that of a container which was stopped
//	> fail VERB [ON] REASON           an action has failed
//	> exits CONTAINER CODE            a container has ended by itself
//	> passes CONTAINER                its startup probe has passed
//	> dies SANDBOX                    the runtime tells that a sandbox is not ready any more
//	> changed VOLUME                  what a volume shows has changed
//	> after DURATION                  time passes
//	> deleted SECONDS                 the pod is deleted
//	> agent restarts                  another agent knows what the runtime and the API server tell, and nothing else
//
// "begin" is an action that begins, "cancel" one that is no longer wanted, and ends by that, "look again" when it is decided anew at the latest; a status is there when it is
// another one than before.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no transcripts: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var now bytes.Buffer
			p := &play{}
			for line := range strings.Lines(string(was)) {
				switch {
				case strings.HasPrefix(line, "#"), line == "\n":
					now.WriteString(line)
				case strings.HasPrefix(line, "> "):
					now.WriteString(line)
					if err := p.tell(strings.Fields(line[2:])); err != nil {
						t.Fatalf("%s: %v", strings.TrimSpace(line), err)
					}
					now.WriteString(p.decide())
				}
			}
			if *rewrite {
				if err := os.WriteFile(file, now.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if now.String() != string(was) {
				t.Errorf("the transcript is another one (-rewrite writes it):\n%s", now.String())
			}
		})
	}
}

// play is one pod, its agent and its runtime.
type play struct {
	in      Input
	actions map[Key]Action // that are under way
	passed  time.Duration
	status  string
}

func list(s string) []string { return strings.Split(s, ",") }

func (p *play) tell(words []string) error {
	switch words[0] {
	case "pod":
		return p.pod(words[1:])
	case "done", "fail":
		return p.ended(words[0] == "done", Verb(words[1]), words[2:])
	case "exits":
		code, err := strconv.Atoi(words[2])
		return p.container(words[1], func(c *Container) { p.exit(c, int32(code)) }, err)
	case "passes":
		return p.container(words[1], func(c *Container) { p.in.Probed[c.ID] = Probed{Started: Yes, Ready: Yes} }, nil)
	case "dies":
		for i := range p.in.Observed.Sandboxes {
			if s := &p.in.Observed.Sandboxes[i]; s.ID == ids.SandboxID(words[1]) {
				s.Ready, s.IPs = false, nil
			}
		}
		for i := range p.in.Observed.Containers {
			if c := &p.in.Observed.Containers[i]; c.SandboxID == ids.SandboxID(words[1]) && c.alive() {
				p.exit(c, 137)
			}
		}
	case "changed":
		p.in.Stale[words[1]] = true
	case "after":
		d, err := time.ParseDuration(words[1])
		p.passed += d
		return err
	case "deleted":
		seconds, err := strconv.Atoi(words[1])
		deleted(p.passed + time.Duration(seconds)*time.Second)(&p.in)
		return err
	case "agent":
		p.in.Facts, p.in.Failures, p.actions = Facts{{What: Granted}: {}}, map[Key]Failure{}, map[Key]Action{}
	default:
		return fmt.Errorf("nobody knows what that is")
	}
	return nil
}

func (p *play) pod(words []string) error {
	*p = play{actions: map[Key]Action{}, in: given(mains("a"))}
	p.in.Stale, p.in.Probed = map[string]bool{}, map[ids.ContainerID]Probed{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "init":
			inits(list(value)...)(&p.in)
		case "sidecars":
			sidecars(list(value)...)(&p.in)
		case "apps":
			mains(list(value)...)(&p.in)
		case "volumes":
			volumes(list(value)...)(&p.in)
		case "policy":
			policy(v1.RestartPolicy(value))(&p.in)
		case "startup":
			for _, name := range list(value) {
				probe(name, true, false)(&p.in)
			}
		case "preStop":
			for _, name := range list(value) {
				spec(name, func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}} })(&p.in)
			}
		default:
			return fmt.Errorf("a pod has no %s", key)
		}
	}
	return nil
}

func (p *play) now() time.Time { return now.Add(p.passed) }

func (p *play) exit(c *Container, code int32) {
	c.State, c.ExitCode, c.FinishedAt = Exited, code, p.now()
}

// container changes the newest one of a name, or the one of an ID.
func (p *play) container(name string, change func(*Container), err error) error {
	if err != nil {
		return err
	}
	if all := p.in.Observed.byName(name); len(all) > 0 {
		change(all[0])
		return nil
	}
	for i := range p.in.Observed.Containers {
		if c := &p.in.Observed.Containers[i]; c.ID == ids.ContainerID(name) {
			change(c)
			return nil
		}
	}
	return fmt.Errorf("there is no container %s", name)
}

// ended ends an action that is under way.
func (p *play) ended(well bool, verb Verb, rest []string) error {
	key := Key{Verb: verb}
	if verbs[verb].on != nil {
		key, rest = keyOf(verb, rest[0]), rest[1:]
	}
	a, ok := p.actions[key]
	if !ok {
		return fmt.Errorf("it is not under way; what is: %v", slices.Collect(maps.Keys(p.actions)))
	}
	delete(p.actions, key)
	p.in.Facts.Ended(&a, well)
	if !well {
		p.in.Failures[key] = Failure{Reason: rest[0], Message: "it failed", At: p.now()}.After(p.in.Failures[key])
		if verb == UpdateVolume {
			p.in.Stale[a.Volume] = true
		}
		return nil
	}
	delete(p.in.Failures, key)
	return p.carriedOut(&a, rest)
}

// carriedOut does to what the runtime holds what an action does.
func (p *play) carriedOut(a *Action, rest []string) error {
	o := &p.in.Observed
	switch a.Verb {
	case CreateSandbox:
		for i := range o.Sandboxes {
			o.Sandboxes[i].Ready = false
		}
		o.Sandboxes = append(o.Sandboxes, Sandbox{ID: ids.SandboxID(fmt.Sprint("s", a.Attempt)), Attempt: a.Attempt, Ready: true, IPs: []string{"10.61.0.5"}, CreatedAt: p.now()})
	case StopSandbox:
		o.sandbox(a.SandboxID).Ready = false
	case RemoveSandbox:
		o.Sandboxes = slices.DeleteFunc(o.Sandboxes, func(s Sandbox) bool { return s.ID == a.SandboxID })
		o.Containers = slices.DeleteFunc(o.Containers, func(c Container) bool { return c.SandboxID == a.SandboxID })
	case StartContainer:
		o.Containers = append(o.Containers, Container{
			ID: ids.ContainerID(fmt.Sprint(a.ContainerName, a.Attempt)), Name: a.ContainerName, Attempt: int32(a.Attempt), Step: a.Step, SandboxID: a.Sandbox.ID, State: Running,
			CreatedAt: p.now(), StartedAt: p.now(), Image: "img",
		})
	case StopContainer:
		code := 0
		if len(rest) > 0 {
			var err error
			if code, err = strconv.Atoi(rest[0]); err != nil {
				return err
			}
		}
		return p.container(string(a.ContainerID), func(c *Container) { p.exit(c, int32(code)) }, nil)
	case RemoveContainer:
		o.Containers = slices.DeleteFunc(o.Containers, func(c Container) bool { return c.ID == a.ContainerID })
	}
	return nil
}

// decide is what the plan makes of it all.
func (p *play) decide() string {
	in := p.in
	in.Now, in.Ongoing = p.now(), map[Key]Ongoing{}
	for key, a := range p.actions {
		in.Ongoing[key] = Ongoing{StopBy: a.StopBy}
	}
	ForgetFailures(p.in.Failures, &in.Observed)
	p.in.Facts.Forget(&in.Observed)
	res := Plan(in)
	var lines []string
	for _, k := range res.Cancel {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("cancel %s %s", k.Verb, k.On())))
		delete(p.actions, k)
		delete(in.Ongoing, k)
	}
	for _, a := range res.Actions {
		lines = append(lines, "begin "+sayActionAt(a, p.now()))
		p.actions[a.Key()] = a
		in.Ongoing[a.Key()] = Ongoing{StopBy: a.StopBy}
		p.in.Facts.Begun(&a)
		if a.Verb == UpdateVolume {
			delete(p.in.Stale, a.Volume)
		}
	}
	slices.Sort(lines)
	if !res.Wake.IsZero() {
		lines = append(lines, "look again in "+res.Wake.Sub(p.now()).String())
	}
	st := Status(in)
	p.in.Prior = st
	if said := sayStatus(st); said != p.status {
		p.status = said
		lines = append(lines, "status "+said)
	}
	if res.Done {
		lines = append(lines, "nothing is left of the pod")
	}
	rest := ""
	if len(res.Cancel) > 0 {
		rest = p.decide() // they have ended by that
	}
	var out strings.Builder
	for _, line := range lines {
		out.WriteString("  " + line + "\n")
	}
	return out.String() + rest
}
