package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types/create"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/state"
)

func TestReadDir(t *testing.T) {
	const good = `{"cniVersion": "1.0.0", "name": "good", "plugins": [{"type": "a", "x": 1}, {"type": "b"}]}`
	for name, c := range map[string]struct {
		files map[string]string
		// file is the one that is chosen; faults have one of these words each.
		file   string
		faults []string
	}{
		"nothing":           {nil, "", nil},
		"other files":       {map[string]string{"README": "x", "a.conflist~": good, "b.yaml": good}, "", nil},
		"a list":            {map[string]string{"a.conflist": good}, "a.conflist", nil},
		"the first by name": {map[string]string{"20.conflist": strings.ReplaceAll(good, "good", "later"), "10.conflist": good}, "10.conflist", nil},
		"one plugin":        {map[string]string{"a.conf": `{"cniVersion": "0.3.1", "name": "one", "type": "a"}`}, "a.conf", nil},
		"one plugin, json":  {map[string]string{"a.json": `{"name": "one", "type": "a"}`}, "a.json", nil},
		"negotiated":        {map[string]string{"a.conflist": strings.Replace(good, `"name"`, `"cniVersions": ["1.1.0", "9.0.0"], "name"`, 1)}, "a.conflist", nil},
		"faults before": {map[string]string{
			"01.conflist": "{", "02.conflist": `{"plugins": [{"type": "a"}]}`, "03.conflist": `{"name": "x", "plugins": []}`, "04.conf": good,
			"05.conflist": `{"name": "x/../y", "plugins": [{"type": "a"}]}`, "06.conflist": `{"name": "x", "plugins": [{"type": "../a"}]}`,
			"07.conflist": "", "08.conflist": strings.Replace(good, "1.0.0", "7.0.0", 1), "09.conflist": strings.Replace(good, "1.0.0", "one", 1),
			"10.conflist": `{"name": "x", "plugins": [{"x": 1}]}`, "11.conflist": strings.Repeat(" ", maxFile+1), "12.conflist": `{"name": "x"}`,
			"13.conflist": good},
			"13.conflist", []string{"01.conflist", "no name", "no plugins in list", ".conflist)", "x/../y", "../a", "is empty", "7.0.0", "one", "type", "more than", "no plugins"}},
		"only faults": {map[string]string{"a.conf": "{"}, "", []string{"a.conf"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range c.files {
				path := filepath.Join(dir, file)
				if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-settleTime))); err != nil {
					t.Fatal(err)
				}
			}
			got := readDir(dir)
			if c.file == "" && got.list != nil || c.file != "" && got.file != filepath.Join(dir, c.file) {
				t.Errorf("chosen: %q", got.file)
			}
			if len(got.faults) != len(c.faults) {
				t.Fatalf("faults %v", got.faults)
			}
			for i, want := range c.faults {
				if f := got.faults[i].Error(); !strings.Contains(f, want) || !strings.HasPrefix(f, dir) {
					t.Errorf("fault %q does not name the file and %q", f, want)
				}
			}
			if err := got.err(); (err == nil) != (c.file != "") || err != nil && !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v does not name the folder", err)
			}
			if !got.same(readDir(dir)) {
				t.Error("read again it is another one")
			}
		})
	}
}

// TestFileIsBeingWritten: a file with a fault that was written just now is waited for; the next one may be of another network.
func TestFileIsBeingWritten(t *testing.T) {
	dir := t.TempDir()
	first := filepath.Join(dir, "10.conflist")
	for path, content := range map[string]string{first: `{"name": "fi`, filepath.Join(dir, "20.conflist"): `{"name": "second", "plugins": [{"type": "a"}]}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c := readDir(dir); c.list != nil || c.err() == nil || !strings.Contains(c.err().Error(), "a moment ago") {
		t.Errorf("chosen: %q, %v", c.file, c.err())
	}
	if err := os.Chtimes(first, time.Time{}, time.Now().Add(-settleTime)); err != nil {
		t.Fatal(err)
	}
	if c := readDir(dir); c.list == nil || c.list.Name != "second" {
		t.Errorf("a fault that stays: %q, %v", c.file, c.err())
	}
}

// TestPipeIsNoConfiguration: what is no regular file is not opened, it might never end.
func TestPipeIsNoConfiguration(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "a.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := readDir(dir); len(c.faults) != 1 || !strings.Contains(c.faults[0].Error(), "no regular file") {
		t.Errorf("faults %v", c.faults)
	}
}

// TestListIsSelfContained: plugins in files of their own are in the list's bytes, which are all that a DEL gets.
func TestListIsSelfContained(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.conflist":     `{"cniVersion": "1.0.0", "cniVersions": ["1.1.0"], "name": "net", "disableCheck": true, "plugins": [{"type": "a", "keep": {"x": 1}}]}`,
		"net/10-b.conf":  `{"type": "b", "capabilities": {"portMappings": true}}`,
		"net/README":     "x",
		"other/10-c.con": "x",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := readDir(dir)
	if c.list == nil {
		t.Fatal(c.err())
	}
	a := attachment{Config: c.list.Bytes}
	list, err := a.list()
	if err != nil {
		t.Fatal(err)
	}
	if list.Name != "net" || list.CNIVersion != "1.1.0" || !list.DisableCheck || len(list.Plugins) != 2 || list.Plugins[1].Network.Type != "b" ||
		!capabilities(list)[portMappings] || !strings.Contains(string(list.Plugins[0].Bytes), "keep") {
		t.Errorf("list %+v", list)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(debianList), true)
	f.Add([]byte(`{"cniVersion": "0.3.1", "name": "one", "type": "a"}`), false)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte, isList bool) {
		list, err := parse(raw, isList, dir)
		if err != nil {
			return
		}
		a := attachment{Config: list.Bytes}
		if again, err := a.list(); err != nil || again.Name != list.Name || len(again.Plugins) != len(list.Plugins) {
			t.Errorf("what was read is not what is stored: %v, %v", again, err)
		}
	})
}

func TestRuntimeConfig(t *testing.T) {
	req := network.Request{
		HostPorts: []network.HostPort{{Protocol: "TCP", HostPort: 80, ContainerPort: 8080},
			{Protocol: "SCTP", HostPort: 81, ContainerPort: 81, HostIP: netip.MustParseAddr("::1")},
			{Protocol: "UDP", HostPort: 82, ContainerPort: 82, HostIP: netip.MustParseAddr("0.0.0.0")}},
		Annotations:  map[string]string{ingressAnnotation: "1M", egressAnnotation: "100M", "other": "x"},
		DNS:          &network.DNS{Servers: []string{"1.1.1.1"}, Searches: []string{"a"}},
		CgroupParent: "/kubepods/pod1",
	}
	got, err := runtimeConfig(req, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		portMappings: `[{"hostPort":80,"containerPort":8080,"protocol":"tcp"},{"hostPort":81,"containerPort":81,"protocol":"sctp","hostIP":"::1"},{"hostPort":82,"containerPort":82,"protocol":"udp"}]`,
		bandwidth:    `{"ingressRate":1000000,"ingressBurst":1048576,"egressRate":100000000,"egressBurst":10000000}`,
		ipRanges:     `[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]`,
		dns:          `{"servers":["1.1.1.1"],"searches":["a"]}`,
		cgroupPath:   `"/kubepods/pod1"`,
	} {
		if string(got[name]) != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("more: %v", got)
	}
	if got, err := runtimeConfig(network.Request{DNS: &network.DNS{}}, nil); err != nil || len(got) != 0 {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	for _, bad := range []string{"", "fast", "999", "2P", "-1M", "1e30"} {
		_, err := runtimeConfig(network.Request{Annotations: map[string]string{egressAnnotation: bad}}, nil)
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), egressAnnotation) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestArguments(t *testing.T) {
	got, err := arguments(request("id", "/ns"))
	want := [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "pod-id"}, {"K8S_POD_INFRA_CONTAINER_ID", "id"}, {"K8S_POD_UID", "uid-id"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"a;K8S_POD_NAME=b", "a=b", "a\nb"} {
		req := request("id", "/ns")
		req.Pod.Name = bad
		if _, err := arguments(req); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPodResult(t *testing.T) {
	for name, c := range map[string]struct{ raw, want string }{
		"both families": {`{"cniVersion": "1.1.0", "interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/ns"}],
			"ips": [{"interface": 1, "address": "fd00::2/64", "gateway": "fd00::1"}, {"interface": 1, "address": "10.0.0.2/24", "gateway": "10.0.0.1"}]}`, "[10.0.0.2 fd00::2] 10.0.0.1"},
		"IPv6 only": {`{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/ns"}], "ips": [{"interface": 0, "address": "fd00::2/64", "gateway": "fd00::1"}]}`, "[fd00::2] fd00::1"},
		"other interfaces": {`{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/ns"}, {"name": "net1", "sandbox": "/ns"}, {"name": "eth0"}],
			"ips": [{"interface": 1, "address": "10.1.0.2/24"}, {"interface": 2, "address": "10.2.0.2/24"}, {"interface": 0, "address": "10.0.0.2/24"}]}`, "[10.0.0.2] invalid IP"},
		"version 0.2.0":  {`{"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1"}}`, "[10.0.0.2] 10.0.0.1"},
		"version 0.3.1":  {`{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.0.0.2/24"}]}`, "[10.0.0.2] invalid IP"},
		"twice":          {`{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}, {"address": "10.0.0.2/16"}]}`, "[10.0.0.2] invalid IP"},
		"none":           {`{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/ns"}]}`, "no address for eth0"},
		"another's only": {`{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/ns"}], "ips": [{"interface": 0, "address": "10.1.0.2/24"}]}`, "no address for eth0"},
		"bad interface":  {`{"cniVersion": "1.0.0", "ips": [{"interface": 3, "address": "10.1.0.2/24"}]}`, "interface 3, of 0"},
		"negative":       {`{"cniVersion": "1.0.0", "ips": [{"interface": -1, "address": "10.1.0.2/24"}]}`, "interface -1"},
		"unspecified":    {`{"cniVersion": "1.0.0", "ips": [{"address": "0.0.0.0/0"}]}`, "no address of an interface"},
	} {
		res, err := create.CreateFromBytes([]byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r, err := podResult(res)
		got := fmt.Sprint(r.IPs, " ", r.Gateway)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if _, err := podResult(nil); err == nil {
		t.Error("no result is taken for one")
	}
}

// TestRecordSurvivesJSON: every field of a record is stored. A new field has to be set here.
func TestRecordSurvivesJSON(t *testing.T) {
	in := attachment{Network: "n", File: "f", Config: json.RawMessage(`{"a":1}`), NetNS: "/ns", Interface: "eth0", Args: [][2]string{{"a", "b"}},
		Runtime: map[string]json.RawMessage{"x": json.RawMessage("1")}, Result: json.RawMessage(`{"b":2}`)}
	for v, i := reflect.ValueOf(in), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the field %s is not set by this test", v.Type().Field(i).Name)
		}
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out attachment
	if err := json.Unmarshal(raw, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%+v became %+v, %v", in, out, err)
	}
}

// While the disk takes the ranges, whoever asks for something else does not wait.
func TestNobodyWaitsForTheRanges(t *testing.T) {
	h := newChain(t)
	db := h.openDB("ranges.db")
	n := h.open(db, Bounds{})
	hangs, ends := make(chan struct{}), make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		if err := db.Update(func(*state.Tx) error { close(hangs); <-ends; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-hangs
	ranges := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	others.Go(func() {
		if err := n.UpdatePodCIDR(t.Context(), ranges); err != nil {
			t.Error(err)
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n.updateMu.TryLock() {
			n.updateMu.Unlock()
			runtime.Gosched()
		}
		if n.Has("nobody") || len(n.PodCIDR()) != 0 {
			t.Error("it has what the disk has not")
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("somebody waits for another's disk")
	}
	close(ends)
	others.Wait()
	if got := n.PodCIDR(); !slices.Equal(got, ranges) {
		t.Errorf("the ranges are %v", got)
	}
}
