use super::*;

const SERVER: NodeId = NodeId(900);

fn member(node: u32, path: &[u32]) -> Member {
    Member { node: NodeId(node), path: path.iter().copied().map(NodeId).collect() }
}

fn positions(tree: &Tree, branch: &Branch, level: u8, bitmap: u32) -> Option<Vec<Range<u32>>> {
    tree.positions(branch, level, bitmap).map(Iterator::collect)
}

/// Two racks of two and three workers below the switches 100 and 101, one worker beside the server
/// below 102.
fn three_racks() -> Tree {
    let members = [
        member(0, &[100, 102]),
        member(1, &[101, 102]),
        member(2, &[102]),
        member(3, &[100, 102]),
        member(4, &[101, 102]),
        member(5, &[101, 102]),
    ];
    Tree::build(SERVER, &members).unwrap()
}

// spec: machine
#[test]
fn workers_in_the_servers_rack_enter_at_its_level() {
    let tree = three_racks();
    assert_eq!(tree.branch(0), Branch::new([2, 3, 0, 0], [0, 0, 0, 0]).unwrap());
    assert_eq!(tree.branch(3), Branch::new([2, 3, 0, 0], [1, 0, 0, 0]).unwrap());
    assert_eq!(tree.branch(5), Branch::new([3, 3, 0, 0], [2, 1, 0, 0]).unwrap());
    assert_eq!(tree.branch(2), Branch::new([0, 3, 0, 0], [0, 2, 0, 0]).unwrap());
    assert_eq!((tree.first_hop(2), tree.first_hop(5)), (NodeId(102), NodeId(101)));
    assert_eq!(tree.top_nodes(), [NodeId(102)]);
}

#[test]
fn bitmaps_name_positions() {
    let tree = three_racks();
    let whole_rack = positions(&tree, &tree.branch(4), 0, 0b111).unwrap();
    assert_eq!(whole_rack, std::slice::from_ref(&(2..5)));
    assert_eq!(positions(&tree, &tree.branch(4), 0, 0b101).unwrap(), [2..3, 4..5]);
    assert_eq!(positions(&tree, &tree.branch(4), 1, 0b101).unwrap(), [0..2, 5..6]);
    assert_eq!(positions(&tree, &tree.branch(2), 1, 0b100).unwrap(), std::slice::from_ref(&(5..6)));
    assert_eq!(positions(&tree, &tree.branch(0), 0, 0b100), None, "that rack has two");
    let strange = Branch::new([4, 3, 0, 0], [0, 0, 0, 0]).unwrap();
    assert_eq!(positions(&tree, &strange, 0, 1), None);
    for rank in 0..6 {
        assert_eq!(tree.worker_at(&tree.branch(rank)), Some(rank));
        assert_eq!(tree.rank_at(tree.position(rank)), rank);
    }
}

#[test]
fn groups_name_parents_and_children_in_the_order_of_places() {
    let groups = three_racks().groups();
    let of = |switch| groups.iter().find(|group| group.switch == NodeId(switch)).unwrap();
    let top = of(102);
    assert_eq!((top.parent, top.level), (SERVER, 1));
    assert_eq!(top.stations[0].children, [NodeId(100), NodeId(101), NodeId(2)]);
    let rack = of(101);
    assert_eq!((rack.parent, rack.level), (NodeId(102), 0));
    assert_eq!(rack.stations[0].upper_places, [0, 1, 0, 0]);
    assert_eq!(rack.stations[0].children, [NodeId(1), NodeId(4), NodeId(5)]);
}

// spec: A-13 machine
#[test]
fn a_thousand_workers_fit_two_levels() {
    let members: Vec<Member> =
        (0..1_024).map(|worker| member(worker, &[2_000 + worker / 32, 3_000])).collect();
    let tree = Tree::build(SERVER, &members).unwrap();
    assert_eq!(tree.branch(1_023), Branch::new([32, 32, 0, 0], [31, 31, 0, 0]).unwrap());
    assert_eq!(positions(&tree, &tree.branch(0), 1, u32::MAX).unwrap()[0], 0..1_024);
}

#[test]
fn a_wide_rack_is_several_stations_below_the_server() {
    let members: Vec<Member> = (0..70).map(|worker| member(worker, &[500])).collect();
    let tree = Tree::build(SERVER, &members).unwrap();
    assert_eq!(tree.branch(40), Branch::new([32, 3, 0, 0], [8, 1, 0, 0]).unwrap());
    assert_eq!(tree.branch(69), Branch::new([6, 3, 0, 0], [5, 2, 0, 0]).unwrap());
    assert_eq!(tree.top_nodes(), [NodeId(500)], "one copy for all its stations");
    let groups = tree.groups();
    assert_eq!((groups.len(), groups[0].stations.len(), groups[0].parent), (1, 3, SERVER));
    let tops: Vec<Top> = tree.tops().collect();
    assert_eq!(
        tops.iter().map(|top| (top.ask_level, top.wanted)).collect::<Vec<_>>(),
        [(1, 0b001), (1, 0b010), (1, 0b100)]
    );
    assert_eq!((tops[2].first_position, tops[2].positions), (64, 6));
}

#[test]
fn workers_without_switches_are_below_the_server() {
    let members: Vec<Member> = (0..40).map(|worker| member(worker, &[])).collect();
    let tree = Tree::build(SERVER, &members).unwrap();
    assert_eq!((tree.first_hop(39), tree.top_nodes().len()), (SERVER, 40));
    assert_eq!(tree.branch(39), Branch::new([8, 2, 0, 0], [7, 1, 0, 0]).unwrap());
    assert!(tree.groups().is_empty() && tree.tops().next().is_none());
    let one = Tree::build(SERVER, &[member(0, &[])]).unwrap();
    assert_eq!(one.branch(0), Branch::new([1, 0, 0, 0], [0; 4]).unwrap());
}

#[test]
fn a_single_station_at_the_top_is_asked_from_above() {
    let top = three_racks().tops().next().unwrap();
    assert_eq!((top.at, top.ask_level, top.wanted), (NodeId(102), 2, 1));
    assert_eq!((top.first_position, top.positions), (0, 6));
}

#[test]
fn what_is_no_tree_is_refused() {
    let error = |members: &[Member]| Tree::build(SERVER, members).unwrap_err();
    assert_eq!(error(&[]), TreeError::NoWorkers);
    for path in [&[SERVER.0][..], &[1, SERVER.0], &[SERVER.0, 1]] {
        assert_eq!(error(&[member(0, path)]), TreeError::ServerOnThePath(SERVER));
    }
    let circle = [member(0, &[1, 2]), member(3, &[2, 1])];
    assert!(matches!(error(&circle), TreeError::TwoParents(_)));
    assert_eq!(error(&[member(0, &[1, 1])]), TreeError::TwoParents(NodeId(1)));
    let crossed = [member(0, &[1, 2]), member(3, &[1, 4])];
    assert_eq!(error(&crossed), TreeError::TwoParents(NodeId(1)));
    let deep = [member(9, &[]), member(0, &[1, 2, 3, 4])];
    assert_eq!(error(&deep), TreeError::TooDeep { worker: 1, levels: 5 });
    let wide: Vec<Member> = (0..1_025).map(|worker| member(worker, &[])).collect();
    assert_eq!(error(&wide), TreeError::TooWide(1_025));
    let rack: Vec<Member> = (0..129).map(|worker| member(worker, &[500])).collect();
    let expected = TreeError::TooManyChildren { switch: NodeId(500), children: 129 };
    assert_eq!(error(&rack), expected);
}
