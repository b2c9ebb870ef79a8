package errand

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestTable: who has to do with an object, and the pauses of those who come to nothing.
func TestTable(t *testing.T) {
	var all Table
	now := time.Now()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "uid-c"}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	pod := func(uid types.UID) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }
	one := New(pod("1"), "a", Plan{Gives: []Give{{claim, volume}}}, now)
	two := New(pod("2"), "a", Plan{Makes: []*corev1.PersistentVolumeClaim{claim}}, now)
	all.Add(one)
	all.Add(two)
	all.Add(two)
	each := func(*Errand) bool { return true }
	if n := len(all.About(Object{Namespace: "default", Name: "c"})); n != 2 || all.Find(OfVolume("v"), each) != one || all.Find(OfVolume("w"), each) != nil {
		t.Errorf("%d have to do with the claim; %v, %v", n, all.Find(OfVolume("v"), each), all.Find(OfVolume("w"), each))
	}
	if e := all.Find(Object{Namespace: "default", Name: "c"}, func(e *Errand) bool { return e.WillMake(claim) }); e != two {
		t.Errorf("the errand that has the claim's volume made is %v", e)
	}
	var pauses []time.Duration
	for range 9 {
		all.Add(two)
		pauses = append(pauses, all.GiveUp(two, now))
	}
	if pauses[0] != 100*time.Millisecond || pauses[1] != 200*time.Millisecond || pauses[8] != 10*time.Second || all.Pause("2", now.Add(time.Second)) != 9*time.Second {
		t.Errorf("pauses of %v, now %v", pauses, all.Pause("2", now.Add(time.Second)))
	}
	if all.Pause("2", now.Add(time.Minute)) != 0 || all.Pause("1", now) != 0 || all.Get("2") != nil || all.Get("1") != one {
		t.Error("a pause does not end, or another one's does")
	}
	all.Forget("2")
	if e := all.Forget("1"); e != one || all.Forget("1") != nil || len(all.of)+len(all.by)+len(all.setbacks) != 0 {
		t.Errorf("%d, %d and %d are left", len(all.of), len(all.by), len(all.setbacks))
	}
}
