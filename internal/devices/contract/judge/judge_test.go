package judge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// TestRules: each rule is complete, has a name of its own, and is in the page for authors.
func TestRules(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "PLUGIN-AUTHORS.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rules {
		if r.api == "" || r.remedy == "" || seen[r.name] {
			t.Errorf("rule %q: API %q, remedy %q, seen before: %t", r.name, r.api, r.remedy, seen[r.name])
		}
		seen[r.name] = true
		if !strings.Contains(string(page), "| `"+r.name+"` |") {
			t.Errorf("docs/PLUGIN-AUTHORS.md does not say what the check %s means", r.name)
		}
	}
	for _, line := range strings.Split(string(page), "\n") {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			if name, _, _ := strings.Cut(rest, "`"); strings.Contains(name, "/") && !seen[name] {
				t.Errorf("docs/PLUGIN-AUTHORS.md has a check %s that there is not", name)
			}
		}
	}
	if len(Names()) != len(rules) {
		t.Error("Names lacks some")
	}
}

func devices(ids ...string) (all []*v1beta1.Device) {
	for _, id := range ids {
		all = append(all, &v1beta1.Device{ID: id, Health: v1beta1.Healthy})
	}
	return all
}

func numa(nodes ...int64) []*v1beta1.Device {
	d := devices("a")
	d[0].Topology = &v1beta1.TopologyInfo{}
	for _, n := range nodes {
		d[0].Topology.Nodes = append(d[0].Topology.Nodes, &v1beta1.NUMANode{ID: n})
	}
	return d
}

func TestList(t *testing.T) {
	long := strings.Repeat("x", 63)
	for i, c := range []struct {
		list List
		want string // NAME VERDICT of all that is not ok
	}{
		{List{Devices: devices("a", "b", long)}, ""},
		{List{Call: Call{Error: "gone", Lost: true}}, "list/first fail"},
		{List{}, "list/first warn"},
		{List{Devices: []*v1beta1.Device{{ID: "a", Health: v1beta1.Unhealthy}}}, "list/first warn"},
		{List{Devices: devices("a", "")}, "list/ids fail"},
		{List{Devices: devices("a", "b", "a")}, "list/ids fail"},
		{List{Devices: devices("a", long+"y")}, "list/ids fail"},
		{List{Devices: []*v1beta1.Device{{ID: "a", Health: "Healthy"}, {ID: "b", Health: ""}}}, "list/health fail"},
		{List{Devices: numa(0, 1), HostNUMA: []int{0, 1}}, ""},
		{List{Devices: numa(0, 2), HostNUMA: []int{0, 1}}, "list/topology warn"},
		{List{Devices: numa(0, 2)}, ""},
		{List{Devices: numa(-1)}, "list/topology warn"},
		{List{Devices: numa(1 << 40)}, "list/topology fail"},
		{List{Devices: devices("a"), Bytes: 4 << 20}, ""},
		{List{Devices: devices("a"), Bytes: 4<<20 + 1}, "list/size warn"},
	} {
		if got := wrong(Listed("r", c.list)...); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func wrong(all ...Check) string {
	var list []string
	for _, c := range all {
		if c.Verdict != OK {
			list = append(list, fmt.Sprintf("%s %s", c.Name, c.Verdict))
		}
	}
	return strings.Join(list, ", ")
}

func TestListAgain(t *testing.T) {
	for i, c := range []struct {
		before, after []string
		want          Verdict
	}{
		{[]string{"a", "b"}, []string{"b", "a"}, OK}, {[]string{"a", "a"}, []string{"a"}, OK}, {nil, nil, OK},
		{[]string{"a"}, []string{"a", "b"}, Warn}, {[]string{"a", "b"}, []string{"b"}, Warn}, {[]string{"a"}, []string{"b"}, Fail},
	} {
		if got := ListedAgain("list/again", "r", Again{Before: devices(c.before...), After: devices(c.after...)}); got.Verdict != c.want {
			t.Errorf("%d: %+v, want %s", i, got, c.want)
		}
	}
}

// TestListAgainWithOtherFaults: the IDs are the same, and the list is worse all the same, unless it was before.
func TestListAgainWithOtherFaults(t *testing.T) {
	good, twice := devices("a"), devices("a", "a")
	word := []*v1beta1.Device{{ID: "a", Health: "OK"}}
	for i, c := range []struct {
		before, after []*v1beta1.Device
		want          Verdict
	}{{good, twice, Fail}, {twice, twice, OK}, {twice, good, OK}, {good, word, Fail}, {good, numa(-1), Warn}, {twice, word, Fail}} {
		if got := ListedAgain("restart/serves", "r", Again{Before: c.before, After: c.after}); got.Verdict != c.want {
			t.Errorf("%d: %+v, want %s", i, got, c.want)
		}
	}
}

// TestLaterLists are judged as the first one is; what was wrong with that already is not said again.
func TestLaterLists(t *testing.T) {
	good, twice, none := List{Devices: devices("a", "b")}, List{Devices: devices("a", "a")}, List{Devices: devices("")}
	word := List{Devices: []*v1beta1.Device{{ID: "a", Health: "Degraded"}}}
	far, negative := List{Devices: numa(5000)}, List{Devices: numa(-1)}
	large := List{Devices: devices("a"), Bytes: 5 << 20}
	for i, c := range []struct {
		first List
		later []List
		want  Verdict
		says  []string
	}{
		{good, nil, OK, []string{"none was sent"}},
		{good, []List{good, {}}, OK, []string{"2 lists, as good as the first"}},
		{good, []List{good, twice}, Fail, []string{"of 2 lists after the first, number 2 (as list/ids): an ID is in the list more than once", `"a"`}},
		{good, []List{none}, Fail, []string{"of 1 list after", "without an ID"}},
		{good, []List{word, good}, Fail, []string{"number 1 (as list/health): words", `"Degraded"`}},
		{good, []List{far}, Fail, []string{"(as list/topology): NUMA nodes that no machine has"}},
		{good, []List{negative, large}, Warn, []string{"number 1 (as list/topology)", "number 2 (as list/size)"}},
		{good, []List{word, negative}, Fail, []string{"list/health", "list/topology"}},
		{good, []List{negative, word}, Fail, []string{"list/health", "list/topology"}},
		{twice, []List{twice, none}, OK, []string{"nothing that was not wrong with the first"}},
		{twice, []List{word}, Fail, []string{"list/health"}},
		{negative, []List{far}, Fail, []string{"no machine has"}},
	} {
		var all Later
		for _, l := range c.later {
			all.Add(l)
		}
		got := ListedLater("r", c.first, all)
		if got.Verdict != c.want || slices.ContainsFunc(c.says, func(part string) bool { return !strings.Contains(got.Found, part) }) {
			t.Errorf("%d: %+v, want %s with %q", i, got, c.want, c.says)
		}
	}
	var many Later
	for range 1000 {
		many.Add(twice)
	}
	if got := ListedLater("r", good, many); strings.Count(got.Found, "list/ids") != 1 {
		t.Errorf("a thousand of the same kind: %s", got.Found)
	}
}

func TestStream(t *testing.T) {
	for i, c := range []struct {
		s    Stream
		want Verdict
	}{
		{Stream{Open: time.Millisecond, Lists: 2}, OK}, {Stream{Open: 10 * time.Second, Lists: 101}, OK}, {Stream{Open: 10 * time.Second, Lists: 102}, Warn},
		{Stream{Ended: "EOF"}, Fail},
	} {
		if got := Streamed("r", c.s); got.Verdict != c.want {
			t.Errorf("%d: %+v, want %s", i, got, c.want)
		}
	}
}

func answer(r ...*v1beta1.ContainerAllocateResponse) Allocation {
	return Allocation{What: "one", Containers: 1, Response: &v1beta1.AllocateResponse{ContainerResponses: r}}
}

func TestAnswers(t *testing.T) {
	type resp = v1beta1.ContainerAllocateResponse
	host := Host{Paths: map[string]string{"/dev/null": "a device node", "/etc": "a folder", "/file": "a file"}, CDI: map[string]string{"v.com/c=1": "", "v.com/c=2": "it is not there"}}
	env := map[string]string{"A": ""}
	device := func(host, container, permissions string) *resp {
		return &resp{Devices: []*v1beta1.DeviceSpec{{HostPath: host, ContainerPath: container, Permissions: permissions}}}
	}
	unusable := answer(&resp{Envs: env})
	unusable.Unusable = "no"
	for i, c := range []struct {
		a    Allocation
		want string
	}{
		{answer(&resp{Envs: env}), "answer/content warn"},
		{answer(), "answer/responses fail, answer/content skip"},
		{answer(&resp{Envs: env}, &resp{Envs: env}), "answer/responses fail"},
		{answer(&resp{}), "answer/content warn"},
		{answer(&resp{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-0"}}), "answer/content warn"},
		{answer(&resp{Envs: map[string]string{"": "x"}}), "answer/envs fail"},
		{answer(&resp{Envs: map[string]string{"A": "\x00"}}), "answer/envs fail"},
		{answer(&resp{Envs: map[string]string{"A B": ""}}), "answer/envs warn"},
		{answer(device("/dev/null", "/dev/x", "rw")), ""},
		{answer(device("/dev/null", "/dev/x", "")), "answer/permissions fail"},
		{answer(device("/dev/null", "/dev/x", "rx")), "answer/permissions fail"},
		{answer(device("dev/null", "/dev/x", "r")), "answer/paths fail"},
		{answer(device("/dev/null", "/..", "r")), "answer/paths fail"},
		{answer(device("/dev/gone", "/dev/x", "r")), "answer/host-paths fail"},
		{answer(device("/file", "/dev/x", "r")), "answer/host-paths fail"},
		{answer(device("/etc", "/dev/x", "r")), "answer/host-paths warn"},
		{answer(&resp{Mounts: []*v1beta1.Mount{{HostPath: "/etc", ContainerPath: "/a"}, {HostPath: "/file", ContainerPath: "/a/"}}}), "answer/paths warn"},
		{answer(&resp{CdiDevices: []*v1beta1.CDIDevice{{Name: "v.com/c=1"}}}), ""},
		{answer(&resp{CdiDevices: []*v1beta1.CDIDevice{{Name: "v.com/c=2"}}}), "answer/cdi fail"},
		{unusable, "answer/usable fail"},
		{Allocation{Call: Call{Error: "no"}}, "answer/content skip"},
	} {
		if got := wrong(Answers("r", []Allocation{c.a}, host)...); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

// TestTheSameFaultOfManyNames: what all devices of a CDI spec lack is told once, with some of their names.
func TestTheSameFaultOfManyNames(t *testing.T) {
	host, devices := Host{CDI: map[string]string{"v.com/c=other": "it is not there"}}, []*v1beta1.CDIDevice{{Name: "v.com/c=other"}}
	for _, n := range []string{"0", "1", "2", "3", "4"} {
		host.CDI["v.com/c="+n] = "/etc/cdi/v.json: /usr/bin/hook does not exist"
		devices = append(devices, &v1beta1.CDIDevice{Name: "v.com/c=" + n})
	}
	all := []Allocation{answer(&v1beta1.ContainerAllocateResponse{CdiDevices: devices}), answer(&v1beta1.ContainerAllocateResponse{CdiDevices: devices[1:2]})}
	const want = `"v.com/c=other": it is not there, "v.com/c=0", "v.com/c=1", "v.com/c=2" and 2 more: /etc/cdi/v.json: /usr/bin/hook does not exist`
	for _, c := range Answers("r", all, host) {
		if c.Name == "answer/cdi" && c.Found != want {
			t.Errorf("got  %s\nwant %s", c.Found, want)
		}
	}
}

func TestSame(t *testing.T) {
	type resp = v1beta1.ContainerAllocateResponse
	two := []*v1beta1.DeviceSpec{{HostPath: "/a", ContainerPath: "/a"}, {HostPath: "/b", ContainerPath: "/b"}}
	turned := slices.Clone(two)
	slices.Reverse(turned)
	for i, c := range []struct {
		one, two *resp
		want     Verdict
	}{
		{&resp{Devices: two}, &resp{Devices: turned}, OK},
		{&resp{Devices: two}, &resp{Devices: two[:1]}, Fail},
		{&resp{CdiDevices: []*v1beta1.CDIDevice{{Name: "a"}}}, &resp{CdiDevices: []*v1beta1.CDIDevice{{Name: "b"}}}, Fail},
		{&resp{Envs: map[string]string{"A": "1"}}, &resp{Envs: map[string]string{"A": "2"}}, Warn},
		{&resp{Mounts: []*v1beta1.Mount{{HostPath: "/a"}}}, &resp{Mounts: []*v1beta1.Mount{{HostPath: "/a", ReadOnly: true}}}, Warn},
	} {
		if got := Same("r", answer(c.one), answer(c.two)); got.Verdict != c.want {
			t.Errorf("%d: %+v, want %s", i, got, c.want)
		}
	}
	failed := answer()
	failed.Error = "no"
	if got := Same("r", answer(), failed); got.Verdict != Fail {
		t.Errorf("%+v", got)
	}
}

func TestOthers(t *testing.T) {
	told := &Options{Preferred: true}
	for i, c := range []struct {
		check Check
		want  Verdict
	}{
		{OptionsOf("r", Asked{Options: *told, Registered: told}), OK},
		{OptionsOf("r", Asked{Options: *told}), OK},
		{OptionsOf("r", Asked{Registered: told}), Fail},
		{OptionsOf("r", Asked{Call: Call{Error: "x", Unknown: true}, Registered: told}), Warn},
		{OptionsOf("r", Asked{Call: Call{Error: "x", Hung: true}}), Fail},
		{Started(Start{Registered: []string{"a"}}), OK}, {Started(Start{Ended: "exit status 1"}), Fail}, {Started(Start{Sockets: []string{"x"}}), Fail}, {Started(Start{}), Fail},
		{NodeRestarted(Restart{}), OK}, {NodeRestarted(Restart{Missing: []string{"a"}}), Fail}, {NodeRestarted(Restart{Missing: []string{"a"}, Ended: "exit"}), Warn},
		{NodeRestarted(Restart{Watched: true}), OK}, {NodeRestarted(Restart{Watched: true, Missing: []string{"a"}}), Fail},
		{Refused(Refusal{Tried: 1, Within: time.Second}), Warn}, {Refused(Refusal{Tried: 1, Ended: "exit"}), OK}, {Refused(Refusal{Tried: 20, Within: 2 * time.Second}), OK},
		{Refused(Refusal{Tried: 21, Within: 2 * time.Second}), Warn},
		{UsedByNode("r", Used{Healthy: 1, Want: 1}), OK}, {UsedByNode("r", Used{Want: 1}), Fail}, {UsedByNode("r", Used{Error: "x"}), Fail}, {UsedByNode("r", Used{Problems: []string{"x"}}), Warn},
		{Containers("r", Allocation{Containers: 2, Response: &v1beta1.AllocateResponse{}}), Warn},
		{OddRequests("allocate/odd", "r", []Odd{{}, {Call: Call{Error: "x"}}}, false), OK},
		{OddRequests("allocate/unknown", "r", []Odd{{}}, true), Warn}, {OddRequests("allocate/unknown", "r", []Odd{{Call: Call{Error: "x"}}}, true), OK},
		{OddRequests("allocate/unknown", "r", []Odd{{Call: Call{Error: "x", Hung: true}}}, true), Fail}, {OddRequests("allocate/odd", "r", []Odd{{Harm: "dead"}}, false), Fail},
		{StartsAnswered("r", []Starting{{}}), OK}, {StartsAnswered("r", []Starting{{Call: Call{Took: time.Minute}}}), Fail},
		{Preferred("r", []Preference{{Call: Call{Took: 2 * time.Second}}})[0], Warn}, {Preferred("r", []Preference{{Wrong: "x"}})[1], Fail},
		{Preferred("r", []Preference{{Call: Call{Error: "x"}}})[1], Skip},
		{Ends(End{})[0], Fail}, {Ends(End{How: "exit status 0", Outlived: []string{"1 (x)"}})[1], Warn},
	} {
		if c.check.Verdict != c.want || (c.check.Remedy != "") != (c.want == Fail || c.want == Warn) {
			t.Errorf("%d: %+v, want %s", i, c.check, c.want)
		}
	}
}

// FuzzJudge: whatever a plugin sends is judged.
func FuzzJudge(f *testing.F) {
	seed := func(m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	seed(&v1beta1.ListAndWatchResponse{Devices: numa(0, -1, 5000)})
	seed(&v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{
		Envs: map[string]string{"A": "1"}, Mounts: []*v1beta1.Mount{{HostPath: "/a", ContainerPath: "b"}}, Devices: []*v1beta1.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "rwx"}},
		CdiDevices: []*v1beta1.CDIDevice{{Name: "v.com/c=1"}},
	}}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var list v1beta1.ListAndWatchResponse
		if proto.Unmarshal(b, &list) == nil {
			Listed("r", List{Devices: list.GetDevices(), Bytes: len(b)})
			ListedAgain("list/again", "r", Again{Before: list.GetDevices(), After: nil})
		}
		var resp v1beta1.AllocateResponse
		if proto.Unmarshal(b, &resp) == nil {
			a := Allocation{Containers: 1, Response: &resp}
			Answers("r", []Allocation{a}, Host{})
			if c := Same("r", a, a); c.Verdict != OK {
				t.Errorf("an answer is not the same as itself: %+v", c)
			}
		}
	})
}
