package pods

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// AppArmorOf is the field that says what an annotation of the kind container.apparmor.security.beta.kubernetes.io/NAME does; nil: it says nothing that is known.
func AppArmorOf(annotation string) *v1.AppArmorProfile {
	switch profile, local := strings.CutPrefix(annotation, v1.DeprecatedAppArmorBetaProfileNamePrefix); {
	case annotation == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case annotation == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case local:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &profile}
	}
	return nil
}

// AdoptAppArmor gives the containers of a new pod the AppArmor profiles that annotations name, where they have none of their own. It returns the annotations to
// whose writer that is worth a word: they were needed, or could not be taken. usable says whether a profile is one that the field may have.
func AdoptAppArmor(pod *v1.Pod, usable func(*v1.AppArmorProfile) bool) (told []string) {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == v1.Windows {
		return nil
	}
	var whole *v1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		whole = pod.Spec.SecurityContext.AppArmorProfile
	}
	for _, c := range Containers(&pod.Spec) {
		key := v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
		text, asked := pod.Annotations[key]
		if !asked || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := AppArmorOf(text)
		if profile != nil && !usable(profile) {
			profile = nil
		}
		if profile != nil && apiequality.Semantic.DeepEqual(profile, whole) {
			continue // the pod says so itself
		}
		told = append(told, key)
		if profile == nil {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &v1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
	return told
}
