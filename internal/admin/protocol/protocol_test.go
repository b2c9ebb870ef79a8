package protocol

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestTheFormatOfADrain(t *testing.T) {
	const golden = `{"active":true,"joined":true,"finished":true,"begun":"1970-01-01T00:00:01Z","until":"1970-01-01T00:00:02Z","turn":1,"turns":2,"known":true,` +
		`"pods":[{"namespace":"a","name":"b","priority":3,"ended":true}]}`
	begun, until := time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	want := Drain{Active: true, Joined: true, Finished: true, Begun: &begun, Until: &until, Turn: 1, Turns: 2, Known: true, Pods: []DrainPod{{"a", "b", 3, true}}}
	if raw, err := json.Marshal(want); err != nil || string(raw) != golden {
		t.Errorf("written as %s, %v", raw, err)
	}
	var got Drain
	if err := json.Unmarshal([]byte(golden), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

// What is told is read by programs, and by commands of other versions: a name that changes is a change of the path's version.
func TestTheFormat(t *testing.T) {
	const golden = `{"node":"n","pid":1,"started":"1970-01-01T00:00:01Z","versions":{"monopod":"m","executor":"x","kubernetes":"k","kernel":"l"},` +
		`"roles":[{"name":"runtime","state":"ready","address":"/a"}],"pods":{"running":1,"pending":2,"succeeded":3,"failed":4,"unknown":5},` +
		`"devices":{"total":1,"healthy":2,"granted":3,"missing":4,"resources":[{"name":"a.com/b","total":5,"healthy":6,"granted":7,"missing":8}]},` +
		`"images":{"count":1,"bytes":2},"disks":[{"name":"data","path":"/d","size":3,"used":2,"free":1}],` +
		`"problems":[{"about":"disk","message":"full"}],"notAsked":[{"what":"pods","why":"so"}]}`
	want := Status{
		Node: "n", PID: 1, Started: time.Unix(1, 0).UTC(), Versions: Versions{"m", "x", "k", "l"}, Roles: []Role{{"runtime", Ready, "/a"}}, Pods: &Pods{1, 2, 3, 4, 5},
		Devices: &Devices{Counts{1, 2, 3, 4}, []Resource{{"a.com/b", Counts{5, 6, 7, 8}}}}, Images: &Images{1, 2}, Disks: []Disk{{"data", "/d", 3, 2, 1}},
		Problems: []Problem{{"disk", "full"}}, NotAsked: []Unknown{{"pods", "so"}},
	}
	if raw, err := json.Marshal(want); err != nil || string(raw) != golden {
		t.Errorf("written as %s, %v", raw, err)
	}
	var got Status
	if err := json.Unmarshal([]byte(golden), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

func TestTheFormatOfATrace(t *testing.T) {
	const golden = `{"namespace":"n","pod":"p","uid":"u","steps":[{"step":"POST","begin":"1970-01-01T00:00:01Z","end":"1970-01-01T00:00:02Z"},` +
		`{"step":"CRI PullImage","container":"a","part":true,"begin":"1970-01-01T00:00:02Z","outcome":"ErrImagePull"}],"dropped":3,"notAsked":[{"what":"bind","why":"so"}]}`
	end := time.Unix(2, 0).UTC()
	want := Trace{Namespace: "n", Pod: "p", UID: "u", Steps: []Step{{Step: "POST", Begin: time.Unix(1, 0).UTC(), End: &end},
		{Step: "CRI PullImage", Container: "a", Part: true, Begin: end, Outcome: "ErrImagePull"}}, Dropped: 3, NotAsked: []Unknown{{"bind", "so"}}}
	if raw, err := json.Marshal(want); err != nil || string(raw) != golden {
		t.Errorf("written as %s, %v", raw, err)
	}
	var got Trace
	if err := json.Unmarshal([]byte(golden), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

func TestTheFormatOfSnapshots(t *testing.T) {
	const golden = `{"snapshots":[{"name":"s","namespace":"n","claim":"c","volume":"v","class":"l","size":1,"heldBy":"qgroup","block":true,"taken":"1970-01-01T00:00:01Z","atOnce":true,` +
		`"state":"ready","used":2,"own":3,"path":"/p","problem":"so"}]}`
	taken, used, own := time.Unix(1, 0).UTC(), int64(2), int64(3)
	want := Snapshots{[]Snapshot{{"s", "n", "c", "v", "l", 1, "qgroup", true, &taken, true, SnapshotReady, &used, &own, "/p", "so"}}}
	if raw, err := json.Marshal(want); err != nil || string(raw) != golden {
		t.Errorf("written as %s, %v", raw, err)
	}
	var got Snapshots
	if err := json.Unmarshal([]byte(golden), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

func TestTheFormatOfACopy(t *testing.T) {
	const golden = `{"namespace":"n","claim":"c","volume":"v","class":"l","size":1,"heldBy":"none","leftOut":["x"],"more":2}`
	want := Copied{Claim{"n", "c"}, "v", "l", 1, "none", LeftOut{[]string{"x"}, 2}}
	if raw, err := json.Marshal(want); err != nil || string(raw) != golden {
		t.Errorf("written as %s, %v", raw, err)
	}
	var got Copied
	if err := json.Unmarshal([]byte(golden), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
}
