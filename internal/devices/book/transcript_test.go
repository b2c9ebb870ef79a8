package book

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/kit/ordered"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts in testdata say anew")

// TestTranscripts plays each file of testdata. A line that begins with ">" is a step, and what follows it up to an empty line or the next step is what comes of it;
// all else is for the reader. What the steps are, steps says.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("transcripts: %q, %v", files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(raw))
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(raw) {
				t.Errorf("%s says otherwise than the book: look what has changed with go test ./internal/devices/book -run TestTranscripts -rewrite\n%s", path, got)
			}
		})
	}
}

// play is a transcript with what comes of its steps.
func play(t *testing.T, text string) string {
	p := &player{t: t, aligner: new(topology.Aligner), counted: map[string]int64{}, sources: map[string]*Part{}, asked: map[string]*asked{}, disk: map[string]string{}}
	p.restart("one")
	var out []string
	answered := false // what follows is what came of the step the last time
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		step, is := strings.CutPrefix(line, "> ")
		switch {
		case is:
			p.said = nil
			words := strings.Fields(step)
			do := steps[words[0]]
			if do == nil {
				t.Fatalf("there is no step %q: there are %q", words[0], slices.Sorted(maps.Keys(steps)))
			}
			do(p, words[1:])
			out = append(append(out, line), p.said...)
			answered = true
		case line == "":
			out, answered = append(out, ""), false
		case !answered:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// player plays one transcript: the sources, the manager and the disk around a book.
type player struct {
	t       *testing.T
	book    *Book
	boot    string
	aligner *topology.Aligner
	counted map[string]int64
	order   []string // of the sources
	sources map[string]*Part
	asked   map[string]*asked // by pod
	disk    map[string]string
	said    []string
}

// asked is what a pod has asked for, and what has come of it.
type asked struct {
	req    Request
	advice Advice
	last   *Question
}

// steps are what a transcript can have done. A resource is named without its domain.
var steps = map[string]func(p *player, words []string){
	// source NAME [advises] [lasts]: there is such a source of devices; the earlier has a resource that two know.
	"source": func(p *player, words []string) {
		p.order = append(p.order, words[0])
		p.sources[words[0]] = &Part{Source: words[0], Snapshot: &inventory.Snapshot{Places: []string{"/" + words[0]}},
			Advises: slices.Contains(words, "advises"), Lasts: slices.Contains(words, "lasts")}
	},
	// devices SOURCE RESOURCE NAME[#NUMA][@NODE[,NODE]][!WHY]...: these are the source's devices of the resource now; each is near a NUMA node, is device nodes, and WHY
	// says what ails it, with "_" for spaces.
	"devices": func(p *player, words []string) {
		part, r := p.sources[words[0]], resourceName(words[1])
		next := &inventory.Snapshot{Places: part.Places, Resources: slices.Clone(part.Resources), Devices: slices.DeleteFunc(slices.Clone(part.Devices), func(d inventory.Device) bool { return d.Resource == r })}
		if !slices.Contains(next.Resources, r) {
			next.Resources = append(next.Resources, r)
		}
		for _, w := range words[2:] {
			w, why, _ := strings.Cut(w, "!")
			name, nodes, _ := strings.Cut(w, "@")
			name, numa, near := strings.Cut(name, "#")
			d := inventory.Device{Resource: r, Name: name, Origin: "/" + part.Source, Unhealthy: strings.ReplaceAll(why, "_", " ")}
			if near {
				d.NUMA = []int{numeral(p.t, numa)}
			}
			if nodes != "" {
				d.Nodes = strings.Split(nodes, ",")
			}
			next.Devices = append(next.Devices, d)
		}
		slices.SortFunc(next.Devices, inventory.Compare)
		part.Snapshot = next
	},
	// restart [BOOT]: the node begins anew with what is on disk; with BOOT the machine did.
	"restart": func(p *player, words []string) {
		boot := p.boot
		if len(words) > 0 {
			boot = words[0]
		}
		p.restart(boot)
	},
	// policy POLICY: the node begins anew with such a topology policy, on a host with NUMA nodes 0 and 1.
	"policy": func(p *player, words []string) {
		var err error
		if p.aligner, err = topology.New(topology.Config{Policy: topology.Policy(words[0]), Nodes: []topology.Node{{ID: 0}, {ID: 1}}}); err != nil {
			p.t.Fatal(err)
		}
		p.restart(p.boot)
	},
	// counts RESOURCE=N: the node's status counts so many, which no source has.
	"counts": func(p *player, words []string) {
		resource, n, _ := strings.Cut(words[0], "=")
		p.counted[resourceName(resource)] = int64(numeral(p.t, n))
	},
	// compare: the book was compared with what runs.
	"compare": func(p *player, _ []string) { p.book.Compare() },
	// ask POD [CONTAINER:][ROLE:]RESOURCE=N...: the pod asks; pods were created in the order of their names. The container is "c", the role main.
	"ask": func(p *player, words []string) {
		uid := words[0]
		a := &asked{req: Request{UID: uid, Namespace: "ns", Name: uid, Created: time.Unix(int64(uid[0]), 0), Counted: p.counted}, advice: Advice{Preferred: map[Place][]string{}, Unfit: map[Key]string{}}}
		for _, w := range words[1:] {
			parts := strings.Split(w, ":")
			container, role := "c", alloc.Main
			for _, part := range parts[:len(parts)-1] {
				if r := alloc.Role(part); r == alloc.Init || r == alloc.Sidecar {
					role = r
				} else {
					container = part
				}
			}
			resource, n, _ := strings.Cut(parts[len(parts)-1], "=")
			i := slices.IndexFunc(a.req.Needs, func(n Need) bool { return n.Container == container })
			if i < 0 {
				i = len(a.req.Needs)
				a.req.Needs = append(a.req.Needs, Need{Container: container, Role: role, Want: map[string]int{}})
			}
			a.req.Needs[i].Want[resourceName(resource)] = numeral(p.t, n)
		}
		p.asked[uid] = a
		p.decide(a)
	},
	// prefers POD [NAME...]: the source that was to be asked prefers these, or says nothing; and it is decided again.
	"prefers": func(p *player, words []string) {
		a := p.asked[words[0]]
		if a.last == nil {
			p.t.Fatalf("nobody was to be asked about pod %s", words[0])
		}
		a.advice.Preferred[a.last.Place] = words[1:]
		p.decide(a)
	},
	// unfit POD RESOURCE NAME WHY...: a check of a device that was chosen for the pod fails; and it is decided again.
	"unfit": func(p *player, words []string) {
		a := p.asked[words[0]]
		a.advice.Unfit[Key{resourceName(words[1]), words[2]}] = strings.Join(words[3:], " ")
		p.decide(a)
	},
	// promise POD [answered]: the pod gets what was chosen; answered: the sources have said what to that, before.
	"promise": func(p *player, words []string) {
		rec := p.book.Whole(words[0])
		if slices.Contains(words, "answered") {
			rec = p.answer(rec, nil)
		}
		p.tell(words[0], None, p.book.Promise(words[0], rec))
	},
	// write POD: what was promised is on disk.
	"write": func(p *player, words []string) {
		rec, _ := p.book.Promised(words[0])
		news, err := p.book.Wrote(words[0])
		if err == nil {
			p.write(words[0], rec)
		}
		p.tell(words[0], news, err)
	},
	// answer POD [NODE...]: the sources answer for what is on record and was not answered in this boot; the answer gives these nodes.
	"answer": func(p *player, words []string) {
		uid := words[0]
		rec, _ := p.book.Record(uid)
		for container, c := range ordered.Map(rec.Containers) {
			for resource, g := range ordered.Map(c.Grants) {
				if g.AnsweredIn(p.boot) {
					continue
				}
				g, wait := p.book.Identify(p.world(), uid, resource, g)
				if wait == nil && len(words) > 1 {
					g.Nodes = words[1:]
					wait = p.book.Claim(p.world(), uid, resource, g)
				}
				if wait != nil {
					p.say("%s waits for %s: %v", uid, short(wait.Resource), wait.Err)
					return
				}
				rec = rec.With(map[string]Container{container: c.WithGrant(resource, g)})
			}
		}
		rec = p.answer(rec, words[1:])
		news := p.book.Amend(uid, rec)
		p.write(uid, rec)
		p.tell(uid, max(news, p.book.Retract(uid)), nil)
	},
	// retract POD: what is not on disk is taken back.
	"retract": func(p *player, words []string) { p.tell(words[0], p.book.Retract(words[0]), nil) },
	// release POD: the pod gives back all that it has.
	"release": func(p *player, words []string) {
		erase, news := p.book.Release(words[0])
		if erase {
			delete(p.disk, words[0])
			p.book.Erase(words[0])
			news = All
		}
		p.tell(words[0], news, nil)
	},
	// damage POD: its record on disk cannot be read at the next start.
	"damage": func(p *player, words []string) { p.disk[words[0]] = "{" },
	// lose: the disk is lost.
	"lose": func(p *player, _ []string) { clear(p.disk) },
	// learn POD [POD2]: the containers that the pod has say what POD2's had on record when they were made, or nothing.
	"learn": func(p *player, words []string) {
		told := []Told{{PodNamespace: "ns", PodName: words[0], Container: "c"}}
		if len(words) > 1 {
			told[0].Record = annotations[words[1]]
		}
		switch l := p.book.Learn(words[0], told); {
		case l.Doubt != nil:
			p.say("%s: what its container %s says cannot be read: %v", words[0], l.Of.Container, l.Doubt)
			p.book.Damage(words[0], l.Doubt)
		case l.Next != nil:
			p.write(words[0], *l.Next)
			p.book.Learnt(words[0], *l.Next)
			p.say("%s: %s", words[0], p.words(*l.Next))
		case l.Erase:
			delete(p.disk, words[0])
			p.book.Erase(words[0])
			p.say("%s has no devices", words[0])
		default:
			p.say("nothing is learnt of %s", words[0])
		}
	},
	// show: all that is in the book.
	"show": func(p *player, _ []string) {
		for _, uid := range slices.Sorted(maps.Keys(p.book.pods)) {
			pod := p.book.pods[uid]
			var has []string
			for rec := range pod.has {
				has = append(has, p.words(rec))
			}
			text := strings.Join(has, " and ")
			if pod.damage != nil {
				text = "damaged"
			}
			p.say("%s is %s: %s", uid, pod.phase, text)
		}
		if len(p.book.line.waiting) > 0 {
			p.say("in the line: %s", strings.Join(p.book.Waiting(), ", "))
		}
	},
}

// annotations are what containers say, by a name.
var annotations = map[string]string{
	"w0":       `{"schema":2,"role":"main","grants":{"example.com/widget":{"source":"cdi","devices":[{"name":"w0"}],"answer":{},"boot":"one"}},"grantedAt":"2025-11-21T02:30:00Z"}`,
	"nonsense": "{",
}

func resourceName(name string) string { return "example.com/" + name }

func short(resource string) string { return strings.TrimPrefix(resource, "example.com/") }

func numeral(t *testing.T, text string) (n int) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q is no number: %v", text, err)
	}
	return n
}

func (p *player) say(format string, args ...any) {
	p.said = append(p.said, strings.ReplaceAll(fmt.Sprintf(format, args...), "example.com/", ""))
}

// tell says what has become of a pod, and who is told.
func (p *player) tell(uid string, news News, err error) {
	if err != nil {
		p.say("%v", err)
		return
	}
	p.say("%s: %s%s", uid, p.book.PhaseOf(uid), map[News]string{None: "", Watchers: "; those who look on are told", All: "; all are told"}[news])
}

func (p *player) restart(boot string) {
	records, damaged := map[string]Record{}, map[string]error{}
	for uid, raw := range p.disk {
		var rec Record
		if err := json.Unmarshal([]byte(raw), &rec); err != nil {
			damaged[uid] = errors.New("the record of " + uid + " cannot be read")
			continue
		}
		records[uid] = rec
	}
	p.boot, p.book = boot, New(boot, p.aligner, records, damaged)
	for uid, rec := range ordered.Map(records) {
		p.say("%s: %s", uid, p.words(rec))
	}
}

func (p *player) write(uid string, rec Record) {
	raw, err := json.Marshal(rec)
	if err != nil {
		p.t.Fatal(err)
	}
	p.disk[uid] = string(raw)
}

func (p *player) world() *World {
	var parts []Part
	for _, name := range p.order {
		parts = append(parts, *p.sources[name])
	}
	return NewWorld(parts...)
}

// decide decides, notes the decision, and says what it is.
func (p *player) decide(a *asked) {
	uid := a.req.UID
	d := p.book.Decide(p.world(), a.req, a.advice)
	news := p.book.Enter(a.req, d)
	switch a.last = d.Question; {
	case d.Wait != nil:
		p.say("%s waits for %s: %v", uid, short(d.Wait.Resource), d.Wait.Err)
	case d.Refusal != nil:
		p.say("%s is refused: %v", uid, d.Refusal)
	case d.Question != nil:
		p.say("%s: %s is to be asked which %d of %q it prefers for %s, with %q among them", uid, d.Question.Source, d.Question.N, d.Question.Available, d.Question.Container, d.Question.Must)
	default:
		p.say("%s gets %s", uid, p.words(Record{Containers: d.Grants}))
	}
	p.tell(uid, news, nil)
}

// answer answers for what of a record was not answered in this boot.
func (p *player) answer(rec Record, nodes []string) Record {
	for container, c := range rec.Containers {
		for resource, g := range c.Grants {
			if g.AnsweredIn(p.boot) {
				continue
			}
			g.Answer, g.Boot = new(answer.Answer), p.boot
			for _, n := range nodes {
				g.Answer.Nodes = append(g.Answer.Nodes, answer.Node{HostPath: n, ContainerPath: n, Permissions: "rw"})
			}
			c = c.WithGrant(resource, g)
		}
		rec = rec.With(map[string]Container{container: c})
	}
	return rec
}

// words are what a record has.
func (p *player) words(rec Record) string {
	var all []string
	for container, c := range ordered.Map(rec.Containers) {
		for resource, g := range ordered.Map(c.Grants) {
			text := fmt.Sprintf("%s %s for %s", short(resource), strings.Join(g.Names(), " "), container)
			if g.Counted > 0 {
				text = fmt.Sprintf("%d %s for %s", g.Counted, short(resource), container)
			}
			if c.Role != alloc.Main {
				text += " (" + string(c.Role) + ")"
			}
			if len(g.Nodes) > 0 {
				text += ", which is " + strings.Join(g.Nodes, " ")
			}
			if !g.AnsweredIn(p.boot) && rec.Schema != 0 {
				text += ", not answered"
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}
