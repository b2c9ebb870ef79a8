package garbage

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestDecide(t *testing.T) {
	const back, front, orphan = metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	for name, tc := range map[string]struct {
		owners               []standing
		finalizer            string
		dependents, circular bool
		want                 action
	}{
		"nobody's":                        {nil, "", true, false, action{}},
		"all there":                       {[]standing{there, there}, "", true, false, action{}},
		"one absent":                      {[]standing{absent, there}, "", false, false, action{disown: []types.UID{"0"}}},
		"one awaits it":                   {[]standing{there, awaiting, absent}, "", true, true, action{disown: []types.UID{"1", "2"}}},
		"all absent":                      {[]standing{absent, absent}, "", true, false, action{remove: true, policy: back}},
		"all absent, an orphanage":        {[]standing{absent}, metav1.FinalizerOrphanDependents, true, false, action{remove: true, policy: orphan}},
		"all absent, in the foreground":   {[]standing{absent}, metav1.FinalizerDeleteDependents, true, false, action{remove: true, policy: front}},
		"awaited, without dependents":     {[]standing{awaiting}, "", false, false, action{remove: true, policy: back}},
		"awaited, with dependents":        {[]standing{absent, awaiting}, "", true, false, action{remove: true, policy: front}},
		"awaited, and awaiting its owner": {[]standing{awaiting}, "", true, true, action{remove: true, policy: front, unblock: true}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &metav1.PartialObjectMetadata{}
			for i := range tc.owners {
				m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{UID: types.UID(rune('0' + i))})
			}
			if tc.finalizer != "" {
				m.Finalizers = []string{"example.com/x", tc.finalizer}
			}
			if got := decide(m, tc.owners, tc.dependents, tc.circular); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
