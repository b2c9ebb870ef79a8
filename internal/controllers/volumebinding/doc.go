// Package volumebinding gives claims their volumes, and says what becomes of volumes whose claim is gone.
//
// Its decisions are pure: they take objects as a cache has them and say what is to be done, in the order and with the words of Kubernetes' controller of
// persistent volumes, so that its events, phases and annotations are what people and provisioners know. The controller acts on them. It makes no volume and removes
// none: provisioners do, who watch claims and volumes. Before it gives up a volume or a claim it reads from the store what a cache may not show yet.
//
// A claim and its volume point at each other. The volume's side (claimRef, with the claim's UID) is written first, the claim's (volumeName, and the annotation
// that the binding is complete) second, each before the status that tells of it; a crash between two leaves what the next decision completes:
//
//	volume  Available --claimRef--> Bound --claim gone--> Released --reclaimed--> (gone), or Failed
//	claim   Pending --volumeName, bind-completed--> Bound --volume gone--> Lost
//
// Each claim, and each volume, is worked on by one worker at a time. Two claims are never given one volume: who decides promises the volume to its claim, and every
// write names the version that the decision was about.
package volumebinding
